/*
 * Elements of the generalised covariance ring, over numbers and categories, in C: what the functions of the
 * same names that sql/functions/91_categories.sql declares do, with the same results.
 *
 * An element is a list of monomials (i, a, j, b, v), ordered by i, a, j, b, none of which is zero. Numbers
 * are exact: those that are small and whole are added up as 64 bits, all others as numeric.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "common/int.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

PG_MODULE_MAGIC;

/* A number as one or the other, or as it was found: what nothing is done with stays that. */
typedef struct
{
	enum
	{
		IS_FOUND, IS_WHOLE, IS_EXACT
	}			form;
	int64		whole;
	Numeric		exact;
} Value;

typedef struct
{
	int32		i;
	int32		j;				/* 0 of the first degree; so is i of a count */
	text	   *a;				/* NULL of numbers */
	text	   *b;
	Value		v;
	uint32		hash;			/* of all but v, where it is looked for */
} Term;

typedef struct
{
	Term		term;
	char		status;
} Sum;

typedef struct
{
	Term	   *terms;
	int			length;
	int			room;
} Element;

/* Does something with one of many terms. */
typedef void (*Taker) (void *to, const Term *term);

/* The types of what comes and goes, as they are in the schema of the function that is called. */
typedef struct
{
	Oid			monomial;
	Oid			feature;
	TupleDesc	monomials;
	TupleDesc	elements;
	TupleDesc	features;
	TupleDesc	shown;
} Types;

static uint32
hash_of(const Term *term)
{
	uint32		hash = murmurhash32((uint32) term->i * 31 + (uint32) term->j);

	if (term->a)
		hash = hash_combine(hash, hash_bytes((unsigned char *) VARDATA_ANY(term->a), VARSIZE_ANY_EXHDR(term->a)));
	if (term->b)
		hash = hash_combine(hash, 1 + hash_bytes((unsigned char *) VARDATA_ANY(term->b), VARSIZE_ANY_EXHDR(term->b)));
	return hash;
}

/* As COLLATE "C" orders them, NULLs last. */
static int
compare_texts(const text *a, const text *b)
{
	int			m,
				n,
				order;

	if (a == b)
		return 0;
	if (!a || !b)
		return a ? -1 : 1;
	m = VARSIZE_ANY_EXHDR(a);
	n = VARSIZE_ANY_EXHDR(b);
	order = memcmp(VARDATA_ANY(a), VARDATA_ANY(b), Min(m, n));
	return order ? order : m - n;
}

static int
compare_terms(const void *one, const void *other)
{
	const Term *l = one;
	const Term *r = other;
	int			order;

	if (l->i != r->i)
		return l->i < r->i ? -1 : 1;
	if ((order = compare_texts(l->a, r->a)) != 0)
		return order;
	if (l->j != r->j)
		return l->j < r->j ? -1 : 1;
	return compare_texts(l->b, r->b);
}


static bool
is_equal(const Term *l, const Term *r)
{
	return l->i == r->i && l->j == r->j && compare_texts(l->a, r->a) == 0 && compare_texts(l->b, r->b) == 0;
}

#define SH_PREFIX sums
#define SH_ELEMENT_TYPE Sum
#define SH_KEY_TYPE Term
#define SH_KEY term
#define SH_HASH_KEY(table, key) ((key).hash)
#define SH_EQUAL(table, one, other) ((one).hash == (other).hash && is_equal(&(one), &(other)))
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) ((entry)->term.hash)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static void
require(bool fits)
{
	if (!fits)
		ereport(ERROR,
				errcode(ERRCODE_DATATYPE_MISMATCH),
				errmsg("this is no element over numbers and categories"));
}

/* Numbers */

static Value
whole(int64 number)
{
	Value		value = {IS_WHOLE, number, NULL};

	return value;
}

static Value
found(Numeric number)
{
	Value		value = {IS_FOUND, 0, number};

	return value;
}

static Numeric
exact_of(Value value)
{
	return value.form == IS_WHOLE ? int64_to_numeric(value.whole) : value.exact;
}

static Value
told(Value value)
{
	static Numeric least = NULL;
	static Numeric most = NULL;
	Datum		number = NumericGetDatum(value.exact);

	if (value.form != IS_FOUND)
		return value;
	if (!most)
	{
		MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);

		least = int64_to_numeric(PG_INT64_MIN);
		most = int64_to_numeric(PG_INT64_MAX);
		MemoryContextSwitchTo(before);
	}
	value.form = IS_EXACT;
	if (DatumGetInt32(DirectFunctionCall2(numeric_cmp, number, NumericGetDatum(most))) > 0 ||
		DatumGetInt32(DirectFunctionCall2(numeric_cmp, number, NumericGetDatum(least))) < 0 ||
		DatumGetInt32(DirectFunctionCall1(numeric_scale, number)) > 0)
		return value;
	return whole(DatumGetInt64(DirectFunctionCall1(numeric_int8, number)));
}

static Value
exactly(PGFunction function, Value a, Value b)
{
	Value		made = {IS_EXACT, 0, NULL};

	made.exact = DatumGetNumeric(DirectFunctionCall2(function, NumericGetDatum(exact_of(a)),
													 NumericGetDatum(exact_of(b))));
	return made;
}

static Value
times(Value a, Value b)
{
	int64		product;

	if (b.form == IS_WHOLE && b.whole == 1)
		return a;
	a = told(a);
	b = told(b);
	if (a.form == IS_WHOLE && b.form == IS_WHOLE && !pg_mul_s64_overflow(a.whole, b.whole, &product))
		return whole(product);
	return exactly(numeric_mul, a, b);
}

static Value
plus(Value a, Value b)
{
	int64		sum;

	a = told(a);
	b = told(b);
	if (a.form == IS_WHOLE && b.form == IS_WHOLE && !pg_add_s64_overflow(a.whole, b.whole, &sum))
		return whole(sum);
	return exactly(numeric_add, a, b);
}

static bool
is_zero(Value value)
{
	value = told(value);
	if (value.form == IS_WHOLE)
		return value.whole == 0;
	return DatumGetBool(DirectFunctionCall2(numeric_eq, NumericGetDatum(value.exact),
											NumericGetDatum(int64_to_numeric(0))));
}

/* Elements as PostgreSQL holds them */

static TupleDesc
described(FmgrInfo *function, Oid schema, const char *name, Oid *type)
{
	MemoryContext before = MemoryContextSwitchTo(function->fn_mcxt);
	TupleDesc	made;

	*type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum(name), ObjectIdGetDatum(schema));
	require(OidIsValid(*type));
	made = lookup_rowtype_tupdesc_copy(*type, -1);
	MemoryContextSwitchTo(before);
	return made;
}

static const Types *
types_of(FunctionCallInfo fcinfo)
{
	FmgrInfo   *function = fcinfo->flinfo;
	Types	   *types = function->fn_extra;
	Oid			schema,
				other;

	if (types)
		return types;
	schema = get_func_namespace(function->fn_oid);
	types = MemoryContextAlloc(function->fn_mcxt, sizeof(Types));
	types->monomials = described(function, schema, "monomial", &types->monomial);
	types->elements = described(function, schema, "mixed_triple", &other);
	types->features = described(function, schema, "feature", &types->feature);
	types->shown = described(function, schema, "mixed_covariance", &other);
	require(types->monomials->natts == 5 && types->elements->natts == 1 && types->features->natts == 2 &&
			types->shown->natts == 3);
	function->fn_extra = types;
	return types;
}

static void
deformed(Datum row, TupleDesc columns, Datum *values, bool *nulls)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(row);
	HeapTupleData tuple;

	require(HeapTupleHeaderGetTypeId(header) == columns->tdtypeid);
	tuple.t_len = HeapTupleHeaderGetDatumLength(header);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = header;
	heap_deform_tuple(&tuple, columns, values, nulls);
}

static Datum
formed(TupleDesc columns, Datum *values, bool *nulls)
{
	return HeapTupleHeaderGetDatum(heap_form_tuple(columns, values, nulls)->t_data);
}

static Term *
next_of(Element *element)
{
	if (element->length == element->room)
	{
		element->room = element->room ? element->room * 2 : 16;
		element->terms = element->terms ? repalloc_huge(element->terms, element->room * sizeof(Term))
			: palloc(element->room * sizeof(Term));
	}
	return &element->terms[element->length++];
}

static void
append(void *to, const Term *term)
{
	*next_of(to) = *term;
}

static void
sort(Element *element)
{
	for (int n = 1; n < element->length; n++)
	{
		if (compare_terms(&element->terms[n - 1], &element->terms[n]) > 0)
		{
			qsort(element->terms, element->length, sizeof(Term), compare_terms);
			return;
		}
	}
}

static Element
element_of(const Types *types, Datum row)
{
	Element		element = {NULL, 0, 0};
	Datum		values[5];
	bool		nulls[5];
	ArrayType  *array;
	Datum	   *terms;
	int			length;

	deformed(row, types->elements, values, nulls);
	require(!nulls[0]);
	array = DatumGetArrayTypeP(values[0]);
	require(ARR_ELEMTYPE(array) == types->monomial && !ARR_HASNULL(array));
	deconstruct_array(array, types->monomial, -1, false, TYPALIGN_DOUBLE, &terms, NULL, &length);
	element.room = length;
	element.terms = palloc_extended(Max(length, 1) * sizeof(Term), MCXT_ALLOC_HUGE);
	for (int n = 0; n < length; n++)
	{
		Term	   *term = next_of(&element);

		deformed(terms[n], types->monomials, values, nulls);
		require(!nulls[0] && !nulls[2] && !nulls[4]);
		term->i = DatumGetInt32(values[0]);
		term->a = nulls[1] ? NULL : DatumGetTextPP(values[1]);
		term->j = DatumGetInt32(values[2]);
		term->b = nulls[3] ? NULL : DatumGetTextPP(values[3]);
		term->v = found(DatumGetNumeric(values[4]));
	}
	/* Products that nothing was added to had another order once. */
	sort(&element);
	return element;
}

static Datum
array_of(const Types *types, const Term *terms, int length)
{
	Datum	   *made = palloc(Max(length, 1) * sizeof(Datum));

	for (int n = 0; n < length; n++)
	{
		const Term *term = &terms[n];
		Datum		values[5] = {Int32GetDatum(term->i), PointerGetDatum(term->a), Int32GetDatum(term->j),
		PointerGetDatum(term->b), NumericGetDatum(exact_of(term->v))};
		bool		nulls[5] = {false, term->a == NULL, false, term->b == NULL, false};

		if (term->v.form != IS_WHOLE && DatumGetInt32(DirectFunctionCall1(numeric_scale, values[4])) > 0)
			values[4] = DirectFunctionCall1(numeric_trim_scale, values[4]);
		made[n] = formed(types->monomials, values, nulls);
	}
	return PointerGetDatum(construct_array(made, length, types->monomial, -1, false, TYPALIGN_DOUBLE));
}

static Datum
datum_of(const Types *types, const Element *element)
{
	Datum		terms = array_of(types, element->terms, element->length);
	bool		null = false;

	return formed(types->elements, &terms, &null);
}

/* Sums of terms, in the memory of an aggregate or of a function */

typedef struct
{
	sums_hash  *table;
	MemoryContext memory;
} Sums;

static Sums *
no_sums(MemoryContext memory)
{
	Sums	   *sums = MemoryContextAlloc(memory, sizeof(Sums));

	sums->table = sums_create(memory, 8, NULL);
	sums->memory = memory;
	return sums;
}

static text *
kept(Sums *sums, const text *category)
{
	Size		size = category ? VARSIZE_ANY(category) : 0;

	return category ? memcpy(MemoryContextAlloc(sums->memory, size), category, size) : NULL;
}

static void
add(void *to, const Term *term)
{
	Sums	   *sums = to;
	Term		key = *term;
	bool		known;
	Sum		   *sum;
	Value		value;

	key.hash = hash_of(term);
	sum = sums_insert(sums->table, key, &known);
	if (!known)
	{
		sum->term.a = kept(sums, term->a);
		sum->term.b = kept(sums, term->b);
		sum->term.v = whole(0);
	}
	value = plus(sum->term.v, term->v);
	if (value.form == IS_EXACT)
	{
		Size		size = VARSIZE(value.exact);

		value.exact = memcpy(MemoryContextAlloc(sums->memory, size), value.exact, size);
		if (sum->term.v.form == IS_EXACT)
			pfree(sum->term.v.exact);
	}
	sum->term.v = value;
}

static Datum
total_of(const Types *types, Sums *sums)
{
	Element		total = {NULL, 0, 0};
	sums_iterator all;
	Sum		   *sum;

	sums_start_iterate(sums->table, &all);
	while ((sum = sums_iterate(sums->table, &all)) != NULL)
	{
		if (!is_zero(sum->term.v))
			append(&total, &sum->term);
	}
	sort(&total);
	return datum_of(types, &total);
}

/* The ring */

static void
take_all(const Element *element, Value factor, Taker take, void *to)
{
	for (int n = 0; n < element->length; n++)
	{
		Term		term = element->terms[n];

		term.v = times(term.v, factor);
		take(to, &term);
	}
}

/* The product of elements over different arguments, so that no two pairs have the same product. */
static void
take_products(const Element *x, const Element *y, Value factor, Taker take, void *to)
{
	bool		some = y->length > 0 && y->terms[0].i == 0;

	for (int l = 0; l < x->length; l++)
	{
		Term		left = x->terms[l];

		CHECK_FOR_INTERRUPTS();
		left.v = times(left.v, factor);
		if (left.i == 0)
			take_all(y, left.v, take, to);
		else if (some)
		{
			Term		term = left;

			term.v = times(term.v, y->terms[0].v);
			take(to, &term);
		}
		if (left.i == 0 || left.j > 0)
			continue;
		for (int r = 0; r < y->length; r++)
		{
			const Term *right = &y->terms[r];
			Term		term;

			if (right->i == 0 || right->j > 0)
				continue;
			term = left.i < right->i ? left : *right;
			term.j = left.i < right->i ? right->i : left.i;
			term.b = left.i < right->i ? right->a : left.a;
			term.v = times(left.v, right->v);
			take(to, &term);
		}
	}
}

/* The product of what a row's values lift to; none if one of them lacks, or is not finite. */
static bool
take_row(const Types *types, ArrayType *row, ArrayType *places, Value factor, Taker take, void *to)
{
	const int32 *place = (const int32 *) ARR_DATA_PTR(places);
	Datum	   *features;
	bool	   *lacking;
	int			m;
	Term	   *variables;
	bool	   *numbers;
	Term		term = {0};

	require(ARR_ELEMTYPE(row) == types->feature && ARR_ELEMTYPE(places) == INT4OID && !ARR_HASNULL(places));
	deconstruct_array(row, types->feature, -1, false, TYPALIGN_DOUBLE, &features, &lacking, &m);
	require(m == ArrayGetNItems(ARR_NDIM(places), ARR_DIMS(places)));
	variables = palloc0(Max(m, 1) * sizeof(Term));
	numbers = palloc0(Max(m, 1) * sizeof(bool));
	for (int n = 0; n < m; n++)
	{
		Datum		values[2];
		bool		nulls[2];

		if (lacking[n])
			return false;
		deformed(features[n], types->features, values, nulls);
		if (nulls[0] && nulls[1])
			return false;
		variables[n].i = place[n];
		variables[n].a = nulls[1] ? NULL : DatumGetTextPP(values[1]);
		variables[n].v = whole(1);
		numbers[n] = !nulls[0];
		if (numbers[n])
		{
			Numeric		number = DatumGetNumeric(values[0]);

			if (numeric_is_nan(number) || numeric_is_inf(number))
				return false;
			variables[n].v = told(found(DatumGetNumeric(DirectFunctionCall1(numeric_trim_scale,
																			NumericGetDatum(number)))));
		}
	}
	term.v = factor;
	take(to, &term);
	for (int i = 0; i < m; i++)
	{
		if (is_zero(variables[i].v))
			continue;
		term = variables[i];
		term.v = times(term.v, factor);
		take(to, &term);
		for (int j = numbers[i] ? i : i + 1; j < m; j++)
		{
			Term		both = term;

			if (is_zero(variables[j].v))
				continue;
			both.j = variables[j].i;
			both.b = variables[j].a;
			both.v = times(term.v, variables[j].v);
			take(to, &both);
		}
	}
	return true;
}

PG_FUNCTION_INFO_V1(idivm_mixed_product);

Datum
idivm_mixed_product(PG_FUNCTION_ARGS)
{
	const Types *types = types_of(fcinfo);
	Element		made = {NULL, 0, 0};

	if (!take_row(types, PG_GETARG_ARRAYTYPE_P(0), PG_GETARG_ARRAYTYPE_P(1), whole(1), append, &made))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(datum_of(types, &made));
}

PG_FUNCTION_INFO_V1(idivm_mixed_total);

Datum
idivm_mixed_total(PG_FUNCTION_ARGS)
{
	const Types *types = types_of(fcinfo);
	Sums	   *sums = no_sums(CurrentMemoryContext);

	if (!PG_ARGISNULL(0))
	{
		ArrayType  *given = PG_GETARG_ARRAYTYPE_P(0);
		Datum	   *elements;
		bool	   *nulls;
		int			length;

		require(ARR_ELEMTYPE(given) == types->elements->tdtypeid);
		deconstruct_array(given, ARR_ELEMTYPE(given), -1, false, TYPALIGN_DOUBLE, &elements, &nulls, &length);
		for (int n = 0; n < length; n++)
		{
			Element		element;

			if (nulls[n])
				continue;
			CHECK_FOR_INTERRUPTS();
			element = element_of(types, elements[n]);
			take_all(&element, whole(1), add, sums);
		}
	}
	PG_RETURN_DATUM(total_of(types, sums));
}

PG_FUNCTION_INFO_V1(idivm_mixed_plus);

Datum
idivm_mixed_plus(PG_FUNCTION_ARGS)
{
	const Types *types = types_of(fcinfo);
	Element		parts[2] = {0};
	Element		sum = {NULL, 0, 0};
	int			l = 0,
				r = 0;

	for (int n = 0; n < 2; n++)
	{
		if (!PG_ARGISNULL(n))
			parts[n] = element_of(types, PG_GETARG_DATUM(n));
	}
	while (l < parts[0].length || r < parts[1].length)
	{
		Term	   *left = &parts[0].terms[l];
		Term	   *right = &parts[1].terms[r];
		int			order = l == parts[0].length ? 1 : r == parts[1].length ? -1 : compare_terms(left, right);
		Term		term = order > 0 ? *right : *left;

		if (order == 0)
			term.v = plus(left->v, right->v);
		if (order != 0 || !is_zero(term.v))
			append(&sum, &term);
		l += order <= 0;
		r += order >= 0;
	}
	PG_RETURN_DATUM(datum_of(types, &sum));
}

PG_FUNCTION_INFO_V1(idivm_mixed_times);

Datum
idivm_mixed_times(PG_FUNCTION_ARGS)
{
	const Types *types = types_of(fcinfo);
	Element		x = element_of(types, PG_GETARG_DATUM(0));
	Element		y = element_of(types, PG_GETARG_DATUM(1));
	Element		made = {NULL, 0, 0};

	take_products(&x, &y, whole(1), append, &made);
	sort(&made);
	PG_RETURN_DATUM(datum_of(types, &made));
}

PG_FUNCTION_INFO_V1(idivm_mixed_multiple);

Datum
idivm_mixed_multiple(PG_FUNCTION_ARGS)
{
	const Types *types = types_of(fcinfo);
	int64		factor = PG_GETARG_INT64(1);
	Element		element;
	Element		made = {NULL, 0, 0};

	if (factor == 1)
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));
	if (factor != 0)
	{
		element = element_of(types, PG_GETARG_DATUM(0));
		take_all(&element, whole(factor), append, &made);
	}
	PG_RETURN_DATUM(datum_of(types, &made));
}

/* Aggregates, whose state only what follows here knows */

static Sums *
sums_so_far(FunctionCallInfo fcinfo)
{
	MemoryContext memory;

	if (!AggCheckCallContext(fcinfo, &memory))
		elog(ERROR, "called outside of an aggregate");
	return PG_ARGISNULL(0) ? no_sums(memory) : (Sums *) PG_GETARG_POINTER(0);
}

PG_FUNCTION_INFO_V1(idivm_mixed_sum_step);

Datum
idivm_mixed_sum_step(PG_FUNCTION_ARGS)
{
	const Types *types = types_of(fcinfo);
	Sums	   *sums = sums_so_far(fcinfo);

	if (!PG_ARGISNULL(1) && !PG_ARGISNULL(2) && !PG_ARGISNULL(3))
	{
		Element		x = element_of(types, PG_GETARG_DATUM(1));
		Element		y = element_of(types, PG_GETARG_DATUM(2));

		take_products(&x, &y, whole(PG_GETARG_INT64(3)), add, sums);
	}
	PG_RETURN_POINTER(sums);
}

PG_FUNCTION_INFO_V1(idivm_mixed_lift_step);

Datum
idivm_mixed_lift_step(PG_FUNCTION_ARGS)
{
	const Types *types = types_of(fcinfo);
	Sums	   *sums = sums_so_far(fcinfo);

	if (!PG_ARGISNULL(1) && !PG_ARGISNULL(2) && !PG_ARGISNULL(3))
		take_row(types, PG_GETARG_ARRAYTYPE_P(2), PG_GETARG_ARRAYTYPE_P(3), whole(PG_GETARG_INT64(1)), add, sums);
	PG_RETURN_POINTER(sums);
}

PG_FUNCTION_INFO_V1(idivm_mixed_sum_total);

Datum
idivm_mixed_sum_total(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(total_of(types_of(fcinfo), sums_so_far(fcinfo)));
}

PG_FUNCTION_INFO_V1(idivm_mixed_shown);

Datum
idivm_mixed_shown(PG_FUNCTION_ARGS)
{
	const Types *types = types_of(fcinfo);
	int32		m = PG_GETARG_INT32(2);
	Element		element = {NULL, 0, 0};
	Datum		values[3] = {0};
	bool		nulls[3] = {false, true, true};

	if (PG_ARGISNULL(0) || PG_GETARG_INT64(0) == 0)
		PG_RETURN_NULL();
	values[0] = PG_GETARG_DATUM(0);
	if (!PG_ARGISNULL(1))
		element = element_of(types, PG_GETARG_DATUM(1));
	if (element.length > 0 && element.terms[0].i == 0 && told(element.terms[0].v).form == IS_WHOLE &&
		told(element.terms[0].v).whole == PG_GETARG_INT64(0))
	{
		Datum	   *categorical = palloc0(Max(m, 1) * sizeof(Datum));

		for (int n = 1; n < element.length; n++)
		{
			const Term *term = &element.terms[n];

			if (term->j == 0 && term->a && term->i <= m)
				categorical[term->i - 1] = BoolGetDatum(true);
		}
		values[1] = PointerGetDatum(construct_array(categorical, m, BOOLOID, 1, true, TYPALIGN_CHAR));
		values[2] = array_of(types, element.terms + 1, element.length - 1);
		nulls[1] = nulls[2] = false;
	}
	PG_RETURN_DATUM(formed(types->shown, values, nulls));
}
