"""The body of the function for a ranked view: it takes the first of a heap of candidates, and adds candidates."""

BODY = """DECLARE
    best {solution};
    added {solution};
    other {solution};
    left_one {solution};
    last_one {solution};
    previous {solution};
    heap {solution}[] := '{{}}';
    fresh {solution}[];
    length integer := 1;
    number bigint := 0;
    place integer;
    next_place integer;
    found_rows integer;
    follows boolean;
    refusal text;
BEGIN
    IF token IS DISTINCT FROM (SELECT {token} FROM {secret} AS g) THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'the rows of a ranked view are not read by its function',
            HINT = 'Call idivm.enumerate.';
    END IF;
    refusal := idivm.refusal({number});
    IF refusal IS NOT NULL THEN
        -- A role that the owner does not trust may have code in the query since the last refresh.
        RAISE insufficient_privilege USING MESSAGE = refusal;
    END IF;
{first}
    IF NOT FOUND THEN RETURN; END IF;
{sums}
    best.place := 0;
    heap[1] := best;
    {several}
        best := heap[1];
{ended}
{sorted_rest}
        last_one := heap[length];
        length := length - 1;
        place := 1;
        LOOP
            next_place := 2 * place;
            EXIT WHEN next_place > length;
            other := heap[next_place];
            IF next_place < length THEN
                left_one := other;
                other := heap[next_place + 1];
                IF {right} THEN
                    next_place := next_place + 1;
                ELSE
                    other := left_one;
                END IF;
            END IF;
            EXIT WHEN NOT coalesce({below}, false);
            heap[place] := other;
            place := next_place;
        END LOOP;
        heap[place] := last_one;
        number := number + 1;
        IF number > skipped THEN
{row}
        END IF;
{produced}
        fresh := '{{}}';
{candidates}
        FOREACH added IN ARRAY fresh LOOP
            length := length + 1;
            place := length;
            WHILE place > 1 LOOP
                next_place := place / 2;
                other := heap[next_place];
                EXIT WHEN NOT coalesce({above}, false);
                heap[place] := other;
                place := next_place;
            END LOOP;
            heap[place] := added;
        END LOOP;
    END LOOP;
END"""
"""A heap in an array, whose elements PostgreSQL changes in place."""
