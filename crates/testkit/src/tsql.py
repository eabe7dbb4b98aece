"""Checks T-SQL without a server: Microsoft's parser says what does not parse, and its schema compiler says
what names a table, column or argument that is not there.

Arguments: the folder of the assemblies, the folder of the runtime. Standard input: a JSON object with "schema",
a script, and "statements", each with "name", "parameters" and "text". Standard output: one line per problem, and
at the end either "validated" or "not validated: why".
"""

import json
import re
import sys
import tempfile


def main():
    assemblies, runtime = sys.argv[1:3]
    asked = json.load(sys.stdin)
    start(runtime)
    import clr

    sys.path.append(assemblies)
    clr.AddReference("Microsoft.SqlServer.TransactSql.ScriptDom")
    objects = parsed("schema", asked["schema"])
    for statement in asked["statements"]:
        parsed(statement["name"], statement["text"])
        parameters = statement["parameters"]
        name = "check " + statement["name"]
        objects.append((name, f"CREATE PROCEDURE [dbo].[{name}] {parameters} AS\n{statement['text']}"))
    try:
        clr.AddReference("Microsoft.SqlServer.Dac.Extensions")
        from Microsoft.SqlServer.Dac.Model import SqlServerVersion, TSqlModel, TSqlModelOptions

        model = TSqlModel(SqlServerVersion.Sql140, TSqlModelOptions())
    except BaseException as error:
        print("not validated:", str(error).splitlines()[0])
        return
    for name, text in objects:
        try:
            model.AddObjects(text)
        except BaseException as error:
            # What was refused stays in the model and spoils all that follows.
            print(f"{name}: {reason(error)}")
            break
    for message in model.Validate():
        text = " ".join(str(message.Message).split())
        # A table that is missing is only a warning: it might be made later. What the server has by itself is
        # unknown here.
        unknown = message.Number == 71502 and "[sys]" not in text
        if str(message.MessageType) == "Error" or unknown:
            print(text)
    print("validated")


def reason(error):
    """What it says, without where it was in the compiler."""
    return " ".join(str(error).split(" at Microsoft.")[0].split()).removeprefix(
        "Cannot add or update objects. The model has build blocking errors: "
    )


def start(runtime):
    from clr_loader import get_coreclr
    from pythonnet import set_runtime

    framework = {"name": "Microsoft.NETCore.App", "version": "3.1.0"}
    with tempfile.NamedTemporaryFile("w", suffix=".runtimeconfig.json") as config:
        json.dump({"runtimeOptions": {"tfm": "netcoreapp3.1", "framework": framework}}, config)
        config.flush()
        set_runtime(get_coreclr(runtime_config=config.name, dotnet_root=runtime))
        import clr  # noqa: F401: the runtime starts now, while its settings are there


def parsed(name, text):
    """Prints what does not parse, and gives back what makes an object, each with its text."""
    from Microsoft.SqlServer.TransactSql.ScriptDom import TSql140Parser
    from System.IO import StringReader

    script, errors = TSql140Parser(True).Parse(StringReader(text))
    for error in errors or []:
        print(f"{name}: line {error.Line}: {error.Message}")
    made = []
    for batch in script.Batches if script else []:
        for statement in batch.Statements:
            part = text[statement.StartOffset : statement.StartOffset + statement.FragmentLength]
            part = re.sub(r"\AALTER (PROCEDURE|FUNCTION)", r"CREATE \1", part)
            if re.match(r"IF SCHEMA_ID", part):
                part = re.search(r"CREATE SCHEMA \[\w+\]", part).group()
            if re.match(r"IF OBJECT_ID\(.*\n\s*CREATE TABLE", part):
                part = part[part.index("CREATE TABLE") :]
            if re.match(r"CREATE (SCHEMA|TABLE|INDEX|UNIQUE INDEX|PROCEDURE|FUNCTION)", part):
                made.append((re.search(r"\[.*?\]", part).group() if "[" in part else name, part))
    return made


main()
