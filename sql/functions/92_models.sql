-- Linear models trained from covariances.

-- Least squares, in closed form and by gradient descent. The slow functions also have a form in C.

-- Return the normal equations of the standardized deviations from the means: for each number except the label, a
-- row of its products with all of these numbers and with the label. Rows of constant numbers are zero.
CREATE OR REPLACE FUNCTION idivm.normal_equations(c idivm.covariance, label integer, OUT a double precision[],
                                       OUT scales double precision[], OUT means double precision[])
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    m integer := cardinality(c.s);
    s double precision[] := c.s;
    q double precision[] := c.q;
    n double precision := c.n;
    places integer[] := ARRAY(SELECT i FROM generate_series(1, m) AS i ORDER BY i = label, i);
    place integer;
    other integer;
    starts integer[];
    v double precision;
BEGIN
    -- The position where row i of the upper triangle would begin if it had a column 0.
    starts := ARRAY(SELECT (i - 1) * m - i * (i - 1) / 2 FROM generate_series(1, m) AS i ORDER BY i);
    a := array_fill(0::double precision, ARRAY[(m - 1) * m]);
    FOR i IN 1 .. m - 1 LOOP
        place := places[i];
        means[i] := s[place] / n;
        scales[i] := sqrt(greatest(q[starts[place] + place] - s[place] * s[place] / n, 0));
    END LOOP;
    FOR i IN 1 .. m - 1 LOOP
        CONTINUE WHEN scales[i] = 0;
        place := places[i];
        FOR j IN i + 1 .. m - 1 LOOP
            other := places[j];
            IF scales[j] > 0 THEN
                v := (q[starts[place] + other] - s[place] * s[other] / n) / scales[i] / scales[j];
                a[(i - 1) * m + j] := v;
                a[(j - 1) * m + i] := v;
            END IF;
        END LOOP;
        a[(i - 1) * m + i] := 1;
        a[i * m] := (q[starts[least(place, label)] + greatest(place, label)] - s[place] * s[label] / n) / scales[i];
    END LOOP;
END
$$;

-- Solve k equations, given as rows of k + 1 numbers, by Gauss-Jordan elimination, after adding `ridge` on the
-- diagonal. A number that other numbers determine gets no weight.
CREATE OR REPLACE FUNCTION idivm.solved(a double precision[], ridge double precision)
    RETURNS double precision[]
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    w integer := ((sqrt(4 * cardinality(a) + 1) + 1) / 2)::integer;
    k integer := w - 1;
    factor double precision;
    weights double precision[] := array_fill(0::double precision, ARRAY[k]);
BEGIN
    FOR i IN 1 .. k LOOP
        IF a[(i - 1) * w + i] <> 0 THEN
            a[(i - 1) * w + i] := a[(i - 1) * w + i] + ridge;
        END IF;
    END LOOP;
    FOR i IN 1 .. k LOOP
        IF abs(a[(i - 1) * w + i]) <= 1e-11 THEN
            FOR j IN 1 .. k LOOP
                a[(j - 1) * w + i] := 0;
            END LOOP;
            CONTINUE;
        END IF;
        FOR r IN 1 .. k LOOP
            factor := a[(r - 1) * w + i] / a[(i - 1) * w + i];
            CONTINUE WHEN r = i OR factor = 0;
            FOR j IN i .. w LOOP
                a[(r - 1) * w + j] := a[(r - 1) * w + j] - factor * a[(i - 1) * w + j];
            END LOOP;
        END LOOP;
    END LOOP;
    FOR i IN 1 .. k LOOP
        IF a[(i - 1) * w + i] <> 0 THEN
            weights[i] := a[i * w] / a[(i - 1) * w + i];
        END IF;
    END LOOP;
    RETURN weights;
END
$$;

-- Run batch gradient descent from some weights until no component of the gradient exceeds the tolerance. Return
-- the weights, followed by the number of steps. The steps have Barzilai-Borwein sizes.
CREATE OR REPLACE FUNCTION idivm.descended(a double precision[], start double precision[], ridge double precision,
                                           tolerance double precision, steps integer)
    RETURNS double precision[]
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    k integer := cardinality(start);
    w integer := k + 1;
    x double precision[] := start;
    gradient double precision[] := start;
    moved double precision[] := array_fill(0::double precision, ARRAY[k]);
    rate double precision := 0;
    steepest double precision;
    g double precision;
    row_sum double precision;
    above double precision;
    below double precision;
    rounds integer := 0;
BEGIN
    -- The bound on the size of the first step.
    FOR i IN 1 .. k LOOP
        row_sum := ridge;
        FOR j IN 1 .. k LOOP
            row_sum := row_sum + abs(a[(i - 1) * w + j]);
        END LOOP;
        rate := greatest(rate, row_sum);
    END LOOP;
    rate := CASE WHEN rate > 0 THEN 1 / rate ELSE 0 END;
    LOOP
        steepest := 0;
        above := 0;
        below := 0;
        FOR i IN 1 .. k LOOP
            g := ridge * x[i] - a[i * w];
            FOR j IN 1 .. k LOOP
                g := g + a[(i - 1) * w + j] * x[j];
            END LOOP;
            above := above + moved[i] * moved[i];
            below := below + moved[i] * (g - gradient[i]);
            gradient[i] := g;
            steepest := greatest(steepest, abs(g));
        END LOOP;
        EXIT WHEN NOT steepest > tolerance OR steepest = 'NaN' OR rounds >= steps;
        IF below > 0 THEN
            rate := above / below;
        END IF;
        FOR i IN 1 .. k LOOP
            moved[i] := -rate * gradient[i];
            x[i] := x[i] + moved[i];
        END LOOP;
        rounds := rounds + 1;
    END LOOP;
    RETURN x || rounds::double precision;
END
$$;

-- Return intercept and weights in the original units from weights of standardized deviations.
CREATE OR REPLACE FUNCTION idivm.weights(mean double precision, deviations double precision[], scales double precision[],
                              means double precision[])
    RETURNS double precision[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    FOR i IN 1 .. cardinality(scales) LOOP
        IF scales[i] <> 0 THEN
            deviations[i] := deviations[i] / scales[i];
        END IF;
        mean := mean - deviations[i] * means[i];
    END LOOP;
    RETURN mean || deviations[:cardinality(scales)];
END
$$;

CREATE OR REPLACE FUNCTION idivm.train(c idivm.covariance, start double precision[] DEFAULT NULL, label integer DEFAULT NULL,
                            ridge double precision DEFAULT 0, tolerance double precision DEFAULT 1e-9,
                            steps integer DEFAULT 10000,
                            OUT weights double precision[], OUT iterations integer)
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    y integer := idivm.label_of(c, label);
    equations record;
    x double precision[];
BEGIN
    IF y IS NULL THEN
        RETURN;
    ELSIF cardinality(start) <> cardinality(c.s) THEN
        RAISE EXCEPTION 'a model of % weights cannot be trained on; the covariance is of % numbers',
            cardinality(start), cardinality(c.s) USING ERRCODE = 'invalid_parameter_value';
    ELSIF cardinality(c.s) = 1 THEN
        weights := ARRAY[c.s[y] / c.n];
        iterations := 0;
        RETURN;
    END IF;
    equations := idivm.normal_equations(c, y);
    x := array_fill(0::double precision, ARRAY[cardinality(c.s) - 1]);
    IF start IS NOT NULL THEN
        FOR i IN 1 .. cardinality(x) LOOP
            x[i] := start[i + 1] * equations.scales[i];
        END LOOP;
    END IF;
    x := idivm.descended(equations.a, x, ridge, tolerance * sqrt(greatest(idivm.covar_centred(c, y, y), 0)), steps);
    weights := idivm.weights(c.s[y] / c.n, x, equations.scales, equations.means);
    iterations := x[cardinality(x)];
END
$$;
COMMENT ON FUNCTION idivm.train(idivm.covariance, double precision[], integer, double precision, double precision, integer) IS
    'fits a model like idivm.linreg, by gradient descent from an earlier model; also returns the number of steps';
