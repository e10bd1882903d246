/*
 * Elements of the covariance ring and models over them, in C: what the plpgsql functions of the same
 * names in sql/functions do, operation by operation, so that the results are the same.
 *
 * A triple of m numbers is the upper triangle, row by row, of a symmetric matrix over 1, x_1, ...,
 * x_m: w(w + 1)/2 floats for a width w of m + 1.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/float.h"

PG_MODULE_MAGIC;

typedef struct
{
	ArrayType  *array;
	float8	   *values;
	int			length;
	int			width;
} Triple;

static void
require(bool fits)
{
	if (!fits)
		ereport(ERROR,
				errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				errmsg("these triples are of different numbers"));
}

static int
size_of(int width)
{
	return width * (width + 1) / 2;
}

static bool
is_plain(ArrayType *array)
{
	return ARR_NDIM(array) == 1 && ARR_ELEMTYPE(array) == FLOAT8OID && !ARR_HASNULL(array);
}

static Triple
triple_of(ArrayType *array)
{
	Triple		triple;

	require(is_plain(array));
	triple.array = array;
	triple.values = (float8 *) ARR_DATA_PTR(array);
	triple.length = ARR_DIMS(array)[0];
	triple.width = (int) ((sqrt(8.0 * triple.length + 1) - 1) / 2);
	require(triple.length == size_of(triple.width));
	return triple;
}

static Triple
empty(int length)
{
	Triple		triple;
	Size		bytes = ARR_OVERHEAD_NONULLS(1) + length * sizeof(float8);

	triple.array = (ArrayType *) palloc0(bytes);
	SET_VARSIZE(triple.array, bytes);
	triple.array->ndim = 1;
	triple.array->elemtype = FLOAT8OID;
	ARR_DIMS(triple.array)[0] = length;
	ARR_LBOUND(triple.array)[0] = 1;
	triple.values = (float8 *) ARR_DATA_PTR(triple.array);
	triple.length = length;
	return triple;
}

/* The first argument, ready to be added to: an aggregate's own state is changed in place. */
static Triple
sum_so_far(FunctionCallInfo fcinfo, int width)
{
	Triple		sum;

	if (PG_ARGISNULL(0))
		return empty(size_of(width));
	sum = triple_of(AggCheckCallContext(fcinfo, NULL) ? PG_GETARG_ARRAYTYPE_P(0)
					: PG_GETARG_ARRAYTYPE_P_COPY(0));
	require(sum.width == width);
	return sum;
}

PG_FUNCTION_INFO_V1(idivm_triple_step);

Datum
idivm_triple_step(PG_FUNCTION_ARGS)
{
	Triple		a,
				b,
				sum;
	const float8 *left;
	float8	   *next;

	require(!PG_ARGISNULL(1) && !PG_ARGISNULL(2));
	a = triple_of(PG_GETARG_ARRAYTYPE_P(1));
	b = triple_of(PG_GETARG_ARRAYTYPE_P(2));
	sum = sum_so_far(fcinfo, a.width + b.width - 1);
	left = a.values;
	next = sum.values;
	for (int i = 0; i < a.width; i++)
	{
		for (int j = i; j < a.width; j++, next++)
			*next = float8_pl(*next, float8_mul(*left++, b.values[0]));
		for (int j = 1; j < b.width; j++, next++)
			*next = float8_pl(*next, float8_mul(a.values[i], b.values[j]));
	}
	for (int i = b.width; i < b.length; i++, next++)
		*next = float8_pl(*next, float8_mul(a.values[0], b.values[i]));
	PG_RETURN_ARRAYTYPE_P(sum.array);
}

PG_FUNCTION_INFO_V1(idivm_triple_lift_step);

Datum
idivm_triple_lift_step(PG_FUNCTION_ARGS)
{
	ArrayType  *row;
	const float8 *x;
	float8		times;
	float8	   *next;
	int			m;
	Triple		sum;

	require(!PG_ARGISNULL(1) && !PG_ARGISNULL(2));
	times = (float8) PG_GETARG_INT64(1);
	row = PG_GETARG_ARRAYTYPE_P(2);
	require(ARR_NDIM(row) == 1 && ARR_ELEMTYPE(row) == FLOAT8OID);
	m = ARR_DIMS(row)[0];
	sum = sum_so_far(fcinfo, m + 1);
	if (times == 0 || array_contains_nulls(row))
		PG_RETURN_ARRAYTYPE_P(sum.array);
	x = (const float8 *) ARR_DATA_PTR(row);
	for (int i = 0; i < m; i++)
	{
		if (isnan(x[i]) || isinf(x[i]))
			PG_RETURN_ARRAYTYPE_P(sum.array);
	}
	next = sum.values;
	for (int i = -1; i < m; i++)
	{
		float8		one = i < 0 ? 1 : x[i];

		for (int j = i; j < m; j++, next++)
			*next = float8_pl(*next, float8_mul(times, float8_mul(one, j < 0 ? 1 : x[j])));
	}
	PG_RETURN_ARRAYTYPE_P(sum.array);
}

PG_FUNCTION_INFO_V1(idivm_triple_products);

Datum
idivm_triple_products(PG_FUNCTION_ARGS)
{
	Triple		t = triple_of(PG_GETARG_ARRAYTYPE_P(0));
	ArrayType  *wanted = PG_GETARG_ARRAYTYPE_P(1);
	const int32 *places = (const int32 *) ARR_DATA_PTR(wanted);
	int			m;
	Triple		made;
	float8	   *next;

	require(ARR_NDIM(wanted) == 1 && ARR_ELEMTYPE(wanted) == INT4OID && !ARR_HASNULL(wanted));
	m = ARR_DIMS(wanted)[0];
	made = empty(size_of(m));
	next = made.values;
	for (int i = 0; i < m; i++)
	{
		require(places[i] > 0 && places[i] < t.width);
		for (int j = i; j < m; j++)
		{
			int			first = Min(places[i], places[j]);
			int			rest = Max(places[i], places[j]) - first;

			require(first + rest < t.width);
			*next++ = t.values[first * t.width - first * (first - 1) / 2 + rest];
		}
	}
	PG_RETURN_ARRAYTYPE_P(made.array);
}

static ArrayType *
plain_array(FunctionCallInfo fcinfo, int number, bool copy)
{
	ArrayType  *array = copy ? PG_GETARG_ARRAYTYPE_P_COPY(number) : PG_GETARG_ARRAYTYPE_P(number);

	require(is_plain(array));
	return array;
}

static int
length_of(ArrayType *array)
{
	return ARR_DIMS(array)[0];
}

PG_FUNCTION_INFO_V1(idivm_solved);

Datum
idivm_solved(PG_FUNCTION_ARGS)
{
	ArrayType  *given = plain_array(fcinfo, 0, true);
	float8		ridge = PG_GETARG_FLOAT8(1);
	float8	   *a = (float8 *) ARR_DATA_PTR(given);
	int			w = (int) rint((sqrt(4.0 * length_of(given) + 1) + 1) / 2);
	int			k = w - 1;
	Triple		found = empty(k);

	require(k > 0 && length_of(given) == k * w);
	for (int i = 0; i < k; i++)
	{
		if (a[i * w + i] != 0)
			a[i * w + i] += ridge;
	}
	for (int i = 0; i < k; i++)
	{
		if (fabs(a[i * w + i]) <= 1e-11)
		{
			for (int j = 0; j < k; j++)
				a[j * w + i] = 0;
			continue;
		}
		for (int r = 0; r < k; r++)
		{
			float8		factor = float8_div(a[r * w + i], a[i * w + i]);

			if (r == i || factor == 0)
				continue;
			for (int j = i; j < w; j++)
				a[r * w + j] = float8_mi(a[r * w + j], float8_mul(factor, a[i * w + j]));
		}
	}
	for (int i = 0; i < k; i++)
	{
		if (a[i * w + i] != 0)
			found.values[i] = float8_div(a[i * w + k], a[i * w + i]);
	}
	PG_RETURN_ARRAYTYPE_P(found.array);
}

PG_FUNCTION_INFO_V1(idivm_descended);

Datum
idivm_descended(PG_FUNCTION_ARGS)
{
	ArrayType  *given = plain_array(fcinfo, 0, false);
	ArrayType  *start = plain_array(fcinfo, 1, false);
	float8		ridge = PG_GETARG_FLOAT8(2);
	float8		tolerance = PG_GETARG_FLOAT8(3);
	int32		steps = PG_GETARG_INT32(4);
	const float8 *a = (const float8 *) ARR_DATA_PTR(given);
	int			k = length_of(start);
	int			w = k + 1;
	Triple		result = empty(w);
	float8	   *x = result.values;
	float8	   *gradient = (float8 *) palloc0(w * sizeof(float8));
	float8	   *moved = (float8 *) palloc0(w * sizeof(float8));
	float8		rate = 0;
	int32		made = 0;

	require(length_of(given) == k * w);
	for (int i = 0; i < k; i++)
	{
		float8		row_sum = ridge;

		x[i] = gradient[i] = ((const float8 *) ARR_DATA_PTR(start))[i];
		for (int j = 0; j < k; j++)
			row_sum = float8_pl(row_sum, fabs(a[i * w + j]));
		rate = float8_max(rate, row_sum);
	}
	rate = float8_gt(rate, 0) ? float8_div(1, rate) : 0;
	for (;;)
	{
		float8		steepest = 0,
					above = 0,
					below = 0;

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < k; i++)
		{
			float8		g = float8_mi(float8_mul(ridge, x[i]), a[i * w + k]);

			for (int j = 0; j < k; j++)
				g = float8_pl(g, float8_mul(a[i * w + j], x[j]));
			above = float8_pl(above, float8_mul(moved[i], moved[i]));
			below = float8_pl(below, float8_mul(moved[i], float8_mi(g, gradient[i])));
			gradient[i] = g;
			steepest = float8_max(steepest, fabs(g));
		}
		if (!float8_gt(steepest, tolerance) || isnan(steepest) || made >= steps)
			break;
		if (float8_gt(below, 0))
			rate = float8_div(above, below);
		for (int i = 0; i < k; i++)
		{
			moved[i] = float8_mul(-rate, gradient[i]);
			x[i] = float8_pl(x[i], moved[i]);
		}
		made++;
	}
	x[k] = made;
	PG_RETURN_ARRAYTYPE_P(result.array);
}
