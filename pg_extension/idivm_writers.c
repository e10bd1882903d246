/*
 * What a transaction that writes tables of synchronous views has under way, in C: its open statements and the
 * views to bring up. The functions of the same names in SQL keep this in the table idivm.writers; here
 * it is in the session's memory, and goes back with subtransactions. No user can write either.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "funcapi.h"
#include "replication/logicalworker.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

PG_MODULE_MAGIC;

/* idivm.lock_class() and the number of idivm.lock_eager() */
#define LOCK_CLASS 1768187766
#define EAGER_LOCK PG_INT32_MIN

/* An array that is NULL has no elements. */
typedef struct Writer
{
	int			level;			/* the subtransaction whose end decides about this state */
	int32		open;			/* statements that have begun and not ended */
	ArrayType  *pending;			/* eager views to bring up when the last of them ends */
	ArrayType  *later;			/* on_commit views to queue when the last of them ends */
	ArrayType  *queued;			/* on_commit views that wait for the commit */
	struct Writer *below;		/* the state that comes back when the subtransaction aborts */
} Writer;

static Writer *writer = NULL;

static void
pop(void)
{
	Writer	   *top = writer;

	writer = top->below;
	pfree(top);
}

static void
subtransaction_ends(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		while (writer != NULL && writer->level >= level)
			pop();
	}
	else if (event == SUBXACT_EVENT_COMMIT_SUB && writer != NULL && writer->level >= level)
	{
		Writer	   *below = writer->below;

		writer->level = level - 1;
		if (below != NULL && below->level == level - 1)
		{
			writer->below = below->below;
			pfree(below);
		}
	}
}

static void
transaction_ends(XactEvent event, void *arg)
{
	/* The memory goes with the transaction. */
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		writer = NULL;
}

/* The state of this subtransaction, to be changed. */
static Writer *
own(void)
{
	static bool registered = false;
	int			level = GetCurrentTransactionNestLevel();
	Writer	   *top;

	if (!registered)
	{
		RegisterXactCallback(transaction_ends, NULL);
		RegisterSubXactCallback(subtransaction_ends, NULL);
		registered = true;
	}
	if (writer != NULL && writer->level == level)
		return writer;
	top = MemoryContextAllocZero(TopTransactionContext, sizeof(Writer));
	if (writer != NULL)
		*top = *writer;
	top->level = level;
	top->below = writer;
	writer = top;
	return top;
}

static bool
is_empty(ArrayType *numbers)
{
	return numbers == NULL || ARR_NDIM(numbers) == 0;
}

/* Whether each of some numbers is among others. */
static bool
are_among(ArrayType *numbers, ArrayType *others)
{
	int			count = is_empty(numbers) ? 0 : ArrayGetNItems(ARR_NDIM(numbers), ARR_DIMS(numbers));
	int			known = is_empty(others) ? 0 : ArrayGetNItems(ARR_NDIM(others), ARR_DIMS(others));

	for (int i = 0; i < count; i++)
	{
		int			at = 0;

		while (at < known && ((int32 *) ARR_DATA_PTR(others))[at] != ((int32 *) ARR_DATA_PTR(numbers))[i])
			at++;
		if (at == known)
			return false;
	}
	return true;
}

/* A copy that lasts as long as the transaction. */
static ArrayType *
kept(FunctionCallInfo fcinfo, int argument)
{
	ArrayType  *copy = NULL;

	if (!PG_ARGISNULL(argument))
	{
		MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
		ArrayType  *given = PG_GETARG_ARRAYTYPE_P_COPY(argument);

		MemoryContextSwitchTo(before);
		if (is_empty(given))
			pfree(given);
		else
			copy = given;
	}
	return copy;
}

static Datum
shown(ArrayType *numbers)
{
	return PointerGetDatum(is_empty(numbers) ? construct_empty_array(INT4OID) : numbers);
}

PG_FUNCTION_INFO_V1(idivm_writer);

Datum
idivm_writer(PG_FUNCTION_ARGS)
{
	TupleDesc	row;
	Datum		values[4];
	bool		nulls[4] = {false};

	if (get_call_result_type(fcinfo, NULL, &row) != TYPEFUNC_COMPOSITE || row->natts != lengthof(values))
		elog(ERROR, "idivm.writer() returns a row of %d columns", (int) lengthof(values));
	values[0] = Int32GetDatum(writer == NULL ? 0 : writer->open);
	values[1] = shown(writer == NULL ? NULL : writer->pending);
	values[2] = shown(writer == NULL ? NULL : writer->later);
	values[3] = shown(writer == NULL ? NULL : writer->queued);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(row), values, nulls));
}

PG_FUNCTION_INFO_V1(idivm_note_writer);

Datum
idivm_note_writer(PG_FUNCTION_ARGS)
{
	Writer	   *state = own();

	state->open = PG_ARGISNULL(0) ? 0 : PG_GETARG_INT32(0);
	state->pending = kept(fcinfo, 1);
	state->later = kept(fcinfo, 2);
	state->queued = kept(fcinfo, 3);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(idivm_clear_writer);

Datum
idivm_clear_writer(PG_FUNCTION_ARGS)
{
	Writer	   *state = own();

	state->open = 0;
	state->pending = state->later = state->queued = NULL;
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(idivm_statement_begins);

Datum
idivm_statement_begins(PG_FUNCTION_ARGS)
{
	Trigger    *trigger;

	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "idivm.statement_begins() is called by triggers alone");
	trigger = ((TriggerData *) fcinfo->context)->tg_trigger;
	/* An apply worker brings views up at its commit, see idivm.end_statement_in_full(). */
	if ((trigger->tgnargs == 0 || strcmp(trigger->tgargs[0], "{}") != 0) && !IsLogicalWorker())
		DirectFunctionCall2(pg_advisory_xact_lock_int4, Int32GetDatum(LOCK_CLASS), Int32GetDatum(EAGER_LOCK));
	own()->open++;
	PG_RETURN_POINTER(NULL);
}

static Datum
integers(text *written)
{
	return OidInputFunctionCall(F_ARRAY_IN, text_to_cstring(written), INT4OID, -1);
}

static Oid
function_named(const char *name, const Oid *types, int count)
{
	Oid			found = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
										PointerGetDatum(buildoidvector(types, count)),
										ObjectIdGetDatum(get_namespace_oid("idivm", false)));

	if (!OidIsValid(found))
		ereport(ERROR, errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("function idivm.%s does not exist", name));
	return found;
}

/* As idivm.leaves_folding has it, where nothing but shared views, which are negative numbers, waits for the commit. */
static bool
leaves_all(ArrayType *later)
{
	int			count = ArrayGetNItems(ARR_NDIM(later), ARR_DIMS(later));
	const char *after = GetConfigOption("idivm.fold_after", true, false);
	int64		now = (GetCurrentTimestamp() +
					   (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY) / 1000;

	if (after == NULL || strtoll(after, NULL, 10) <= now)
		return false;
	for (int i = 0; i < count; i++)
		if (((int32 *) ARR_DATA_PTR(later))[i] > 0)
			return false;
	return true;
}

PG_FUNCTION_INFO_V1(idivm_end_statement);

/*
 * Most statements stand alone, and all that is pending after them is what their trigger says. What is
 * called here was looked up in the schema idivm, which users cannot write to; its rights are not
 * asked for again.
 */
Datum
idivm_end_statement(PG_FUNCTION_ARGS)
{
	Oid			types[] = {INT4ARRAYOID, INT4ARRAYOID};
	Datum		pending = integers(PG_GETARG_TEXT_PP(0));
	Datum		later = integers(PG_GETARG_TEXT_PP(1));

	if (IsLogicalWorker() || writer == NULL || writer->open != 1 || !is_empty(writer->pending) || !is_empty(writer->later) ||
		(!are_among(DatumGetArrayTypeP(later), writer->queued) && !leaves_all(DatumGetArrayTypeP(later))))
	{
		OidFunctionCall2(function_named("end_statement_in_full", types, 2), pending, later);
		PG_RETURN_VOID();
	}
	own()->open = 0;
	if (!is_empty(DatumGetArrayTypeP(pending)))
		OidFunctionCall1(function_named("refresh_synchronous", types, 1), pending);
	PG_RETURN_VOID();
}
