-- The archive needs no upkeep: InnoDB keeps its own statistics.
DO 0
