SET NOCOUNT ON;
DECLARE @Ids nvarchar(max) = {inbox+_Ids}({keys});
