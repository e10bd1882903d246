/*
 * Capture for one statement, in C: what the plpgsql function of the same operation does, without
 * starting an executor for it. The row trigger of replica sessions calls it as well, for one row.
 *
 * The trigger names its source, the number of the table among those that carry the source's
 * capture, and the key's columns by their numbers in the log:
 *
 *     EXECUTE FUNCTION idivm.capture_rows('5', '1', '1', '3')
 *
 * Which column of the table goes where follows from what PostgreSQL keeps by itself through
 * renames, dropped columns and restored dumps: the parse tree of the source view
 * idivm_def.s<id>, and the order of the log's columns, which is that of the view. Where anything
 * is not just as idivm makes it, or rows do not pair by their positions, the plpgsql function
 * idivm_log.s<id>_<operation>_<number> is called instead and logs the statement; the two must give
 * the same rows.
 *
 * Nothing is asked of the privileges of whoever writes the table, as the plpgsql function is
 * SECURITY DEFINER. So the trigger's arguments are not trusted: that the table belongs to the
 * source is proved by the function that turns a row of just this table into one of the source.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_rewrite.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "rewrite/rewriteSupport.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"
#include "utils/xid8.h"

PG_MODULE_MAGIC;

/* A statement's number shifted right by this many bits tells the log segment by its lowest bit. */
#define SEGMENT_BITS 32

/* Rows that are formed before they are inserted together. */
#define BATCH_ROWS 500
#define BATCH_BYTES (64 * 1024)

/* Statements between looks after the log, as in orchestrator/deltascript/capture.py. */
#define LOOK_EVERY 1024

typedef enum
{
	IS_ABSENT,					/* a dropped column */
	IS_NUMBER,
	IS_XID,
	IS_OPERATION,
	IS_OLD,
	IS_NEW
} Origin;

typedef struct
{
	Origin		origin;
	AttrNumber	attnum;			/* in the table, of IS_OLD and IS_NEW */
} LogColumn;

typedef struct
{
	AttrNumber	attnum;			/* in the table */
	bool		in_key;
	bool		byval;
	int16		len;
} UsedColumn;

/* What a trigger does, by its OID. Kept until something that it was made from changes. */
typedef struct
{
	Oid			trigger;		/* hash key */
	bool		valid;
	bool		in_c;			/* else by the plpgsql function */
	bool		keyed;
	Oid			relations[6];	/* all that a change of is noticed */
	Oid			sequence;
	Oid			segments[2];
	AttrNumber	last;			/* the last used column */
	int			n_log;
	LogColumn  *log;
	int			n_used;
	UsedColumn *used;
	MemoryContext memory;
} Capture;

/* Where the log rows of one statement go. */
typedef struct
{
	const Capture *capture;
	Relation	segment;
	int64		number;
	Datum		xid;
	Relation   *indexes;		/* of the segment, without those that no row of a statement belongs to */
	IndexInfo **infos;
	int			n_indexes;
	MemoryContext rows;			/* what the rows of a batch are made of */
	Datum	   *values;
	bool	   *nulls;
	TupleTableSlot **slots;
	int			n_slots;		/* made so far */
	int			n_rows;			/* of the batch */
	Size		bytes;
} Writer;

static HTAB *captures = NULL;

static const char *
operation_name(TriggerEvent event)
{
	return TRIGGER_FIRED_FOR_ROW(event) ? "rows"
		: TRIGGER_FIRED_BY_INSERT(event) ? "insert"
		: TRIGGER_FIRED_BY_UPDATE(event) ? "update" : "delete";
}

/* Which trigger needs a new look at the catalog ------------------------------------------------ */

static void
forget_relation(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS all;
	Capture    *capture;

	hash_seq_init(&all, captures);
	while ((capture = hash_seq_search(&all)) != NULL)
	{
		if (relation == InvalidOid)
			capture->valid = false;
		for (int i = 0; i < lengthof(capture->relations); i++)
		{
			if (capture->relations[i] == relation)
				capture->valid = false;
		}
	}
}

static Capture *
look_up(Oid trigger)
{
	Capture    *capture;
	bool		found;

	if (captures == NULL)
	{
		HASHCTL		shape = {.keysize = sizeof(Oid), .entrysize = sizeof(Capture)};

		captures = hash_create("idivm capture", 32, &shape, HASH_ELEM | HASH_BLOBS);
		CacheRegisterRelcacheCallback(forget_relation, (Datum) 0);
	}
	capture = hash_search(captures, &trigger, HASH_ENTER, &found);
	if (!found)
	{
		memset(capture, 0, sizeof(Capture));
		capture->trigger = trigger;
	}
	return capture;
}

/* From the catalog to what a trigger does -------------------------------------------------------- */

/* A function of the source's, found whatever rights the writer has. */
static Oid
function_of_source(char **args, const char *what)
{
	oidvector  *arguments = buildoidvector(NULL, 0);
	char		name[NAMEDATALEN];

	snprintf(name, sizeof(name), "s%s_%s_%s", args[0], what, args[1]);
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
						   PointerGetDatum(arguments),
						   ObjectIdGetDatum(get_namespace_oid("idivm_log", true)));
}

/*
 * Whether capture is set up on the table. That its owner made a trigger that calls this module, to
 * write the log of somebody else's table, does not make it so: nobody else may call the function of
 * the trigger on TRUNCATE, which is always plpgsql.
 */
static bool
is_member(const Trigger *trigger, Relation table)
{
	Oid			truncate = function_of_source(trigger->tgargs, "truncate");

	for (int i = 0; i < table->trigdesc->numtriggers; i++)
	{
		if (OidIsValid(truncate) && table->trigdesc->triggers[i].tgfoid == truncate)
			return true;
	}
	return false;
}

/* Has the views of a source rebuilt, where nothing is left that would log the statement. */
static void
note_lost(const char *source)
{
	Oid			types[] = {INT4OID};
	Oid			schema = get_namespace_oid("idivm", true);
	Oid			function = InvalidOid;

	if (OidIsValid(schema))
		function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("note_lost"),
								   PointerGetDatum(buildoidvector(types, lengthof(types))),
								   ObjectIdGetDatum(schema));
	if (OidIsValid(function))
		OidFunctionCall1(function, Int32GetDatum(pg_strtoint32(source)));
}

static Datum
call_plpgsql(FunctionCallInfo fcinfo)
{
	TriggerData *trigger_data = (TriggerData *) fcinfo->context;
	Oid			function = function_of_source(trigger_data->tg_trigger->tgargs,
											  operation_name(trigger_data->tg_event));
	FmgrInfo	flinfo;
	LOCAL_FCINFO(call, 0);

	if (!OidIsValid(function))
	{
		/* Nobody's views are to be rebuilt by whoever makes such a trigger on a table of his own. */
		if (is_member(trigger_data->tg_trigger, trigger_data->tg_relation))
			note_lost(trigger_data->tg_trigger->tgargs[0]);
		return PointerGetDatum(NULL);
	}
	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*call, &flinfo, 0, InvalidOid, fcinfo->context, fcinfo->resultinfo);
	return FunctionCallInvoke(call);
}

static Oid
object_of_source(const char *schema, const char *source, const char *suffix)
{
	Oid			space = get_namespace_oid(schema, true);
	char		name[NAMEDATALEN];

	snprintf(name, sizeof(name), "s%s%s", source, suffix);
	return OidIsValid(space) ? get_relname_relid(name, space) : InvalidOid;
}

/* The query of a view, read without a lock: writers must not wait for one who waits for them. */
static Query *
view_query(Oid view)
{
	HeapTuple	rule = SearchSysCache2(RULERELNAME, ObjectIdGetDatum(view),
									   CStringGetDatum(ViewSelectRuleName));
	Query	   *query = NULL;

	if (HeapTupleIsValid(rule))
	{
		bool		isnull;
		Datum		action = SysCacheGetAttr(RULERELNAME, rule, Anum_pg_rewrite_ev_action, &isnull);
		List	   *actions = isnull ? NIL : (List *) stringToNode(TextDatumGetCString(action));

		if (list_length(actions) == 1 && IsA(linitial(actions), Query))
			query = linitial_node(Query, actions);
		ReleaseSysCache(rule);
	}
	return query;
}

static bool
is_in_key(const Trigger *trigger, const char *number)
{
	for (int i = 2; i < trigger->tgnargs; i++)
	{
		if (strcmp(trigger->tgargs[i], number) == 0)
			return true;
	}
	return false;
}

/*
 * The columns of the table, in the order in which the source view shows those of its own. False
 * if the view or the table has what is not plainly copied.
 */
static bool
used_columns(Query *query, Relation table, Oid *source_relation, AttrNumber *attnums, int *count)
{
	ListCell   *cell;

	RangeTblEntry *source;

	*count = 0;
	*source_relation = InvalidOid;
	if (query->rtable == NIL)
		return false;
	/* Before version 16 a view's query begins with two entries for the view itself. */
	source = llast_node(RangeTblEntry, query->rtable);
	if (source->rtekind != RTE_RELATION)
		return false;
	*source_relation = source->relid;
	if (*source_relation != RelationGetRelid(table) &&
		!list_member_oid(find_all_inheritors(*source_relation, NoLock, NULL),
						 RelationGetRelid(table)))
		return false;

	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);
		Var		   *var = (Var *) entry->expr;
		AttrNumber	attnum;
		Form_pg_attribute attribute;

		if (IsA(entry->expr, Const) && foreach_current_index(cell) == 0)
			continue;			/* stands for no column, as for count(*) */
		if (!IsA(var, Var) || var->varno != list_length(query->rtable) || var->varattno <= 0)
			return false;
		attnum = var->varattno;
		if (*source_relation != RelationGetRelid(table))
		{
			/* Columns of partitions and inheritance children have the names of those above, and other numbers. */
			char	   *name = get_attname(*source_relation, attnum, true);

			attnum = name == NULL ? InvalidAttrNumber : get_attnum(RelationGetRelid(table), name);
		}
		if (attnum <= 0 || attnum > RelationGetNumberOfAttributes(table))
			return false;
		attribute = TupleDescAttr(RelationGetDescr(table), attnum - 1);
		if (attribute->attisdropped || attribute->atttypid != var->vartype)
			return false;
#if PG_VERSION_NUM >= 180000
		/* The rows of transition tables lack it. */
		if (attribute->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
			return false;
#endif
		attnums[(*count)++] = attnum;
	}
	return true;
}

/* Whether an index has the predicate op = 'T': it holds the rows of TRUNCATE alone. */
static bool
is_of_truncate(Relation index, Relation segment)
{
	List	   *predicate = RelationGetIndexPredicate(index);
	OpExpr	   *equal = list_length(predicate) == 1 ? linitial(predicate) : NULL;
	Var		   *column;
	Const	   *value;

	if (equal == NULL || !IsA(equal, OpExpr) || get_opcode(equal->opno) != F_CHAREQ)
		return false;
	column = linitial(equal->args);
	value = lsecond(equal->args);
	return IsA(column, Var) && IsA(value, Const) && column->varattno > 0 &&
		strcmp(NameStr(TupleDescAttr(RelationGetDescr(segment), column->varattno - 1)->attname), "op") == 0 &&
		!value->constisnull && DatumGetChar(value->constvalue) == 'T';
}

/* Whether inserting into a log runs nothing but PostgreSQL's own code. */
static bool
segment_is_plain(Relation segment)
{
	TupleConstr *constraints = RelationGetDescr(segment)->constr;
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(segment))
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		bool		plain = index->rd_rel->relam == BTREE_AM_OID &&
			!index->rd_index->indisunique && !index->rd_index->indisexclusion &&
			heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) &&
			(heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) || is_of_truncate(index, segment));

		index_close(index, NoLock);
		if (!plain)
			return false;
	}
	return segment->rd_rel->relkind == RELKIND_RELATION &&
		segment->trigdesc == NULL &&
		!segment->rd_rel->relrowsecurity &&
		!segment->rd_rel->relispartition &&
		(constraints == NULL ||
		 (!constraints->has_not_null && !constraints->has_generated_stored &&
		  constraints->num_defval == 0 && constraints->num_check == 0));
}

/* Finds a log column's origin; false if it is none that idivm makes. */
static bool
log_column(Capture *capture, const Trigger *trigger, Relation table, Form_pg_attribute column,
		   const AttrNumber *attnums, int count, int *seen, LogColumn *found)
{
	const char *name = NameStr(column->attname);
	Form_pg_attribute attribute;
	bool		is_new;

	found->attnum = InvalidAttrNumber;
	found->origin = IS_ABSENT;
	if (column->attisdropped)
		return true;
	if (strcmp(name, "seq") == 0)
		found->origin = IS_NUMBER;
	else if (strcmp(name, "xid") == 0)
		found->origin = IS_XID;
	else if (strcmp(name, "op") == 0)
		found->origin = IS_OPERATION;
	if (found->origin != IS_ABSENT)
		return column->atttypid == (found->origin == IS_NUMBER ? INT8OID
									: found->origin == IS_XID ? XID8OID : CHAROID);

	is_new = strncmp(name, "n_", 2) == 0;
	if ((!is_new && strncmp(name, "o_", 2) != 0) || seen[is_new] == count)
		return false;
	found->origin = is_new ? IS_NEW : IS_OLD;
	found->attnum = attnums[seen[is_new]++];
	attribute = TupleDescAttr(RelationGetDescr(table), found->attnum - 1);
	if (getBaseType(attribute->atttypid) != column->atttypid)
		return false;
	if (is_new)
	{
		UsedColumn *used = &capture->used[capture->n_used++];

		used->attnum = found->attnum;
		used->in_key = is_in_key(trigger, name + 2);
		used->byval = attribute->attbyval;
		used->len = attribute->attlen;
		capture->keyed |= used->in_key;
		capture->last = Max(capture->last, used->attnum);
	}
	return true;
}

/* Finds the objects that a log consists of; false if one of them is missing. */
static bool
find_log(Capture *capture, const char *source)
{
	capture->sequence = object_of_source("idivm_log", source, "_seq");
	capture->segments[0] = object_of_source("idivm_log", source, "_a");
	capture->segments[1] = object_of_source("idivm_log", source, "_b");
	return OidIsValid(capture->sequence) && OidIsValid(capture->segments[0]) &&
		OidIsValid(capture->segments[1]);
}

/* Makes out what a trigger does, with the segment locked so that none widens the log meanwhile. */
static void
make_out(Capture *capture, const Trigger *trigger, Relation table, Relation segment)
{
	Oid			view = object_of_source("idivm_def", trigger->tgargs[0], "");
	TupleDesc	shape = RelationGetDescr(segment);
	AttrNumber *attnums;
	int			count;
	int			seen[2] = {0, 0};
	Oid			source_relation;
	Query	   *query;
	MemoryContext outer;
	bool		fine;

	if (capture->memory != NULL)
		MemoryContextDelete(capture->memory);
	capture->memory = NULL;
	capture->in_c = false;
	capture->keyed = false;
	capture->last = 0;
	capture->n_log = capture->n_used = 0;
	capture->relations[0] = RelationGetRelid(table);
	capture->relations[1] = view;
	capture->relations[2] = InvalidOid;
	capture->relations[3] = capture->segments[0];
	capture->relations[4] = capture->segments[1];
	capture->relations[5] = capture->sequence;
	/* A change that arrives from here on shows up as one of this entry. */
	capture->valid = true;

	query = OidIsValid(view) ? view_query(view) : NULL;
	if (query == NULL || !segment_is_plain(segment))
		return;
	attnums = palloc(sizeof(AttrNumber) * (list_length(query->targetList) + 1));
	fine = used_columns(query, table, &source_relation, attnums, &count);
	capture->relations[2] = source_relation;
	if (!fine)
		return;

	capture->memory = AllocSetContextCreate(TopMemoryContext, "idivm capture of a table",
											ALLOCSET_SMALL_SIZES);
	outer = MemoryContextSwitchTo(capture->memory);
	capture->log = palloc0(sizeof(LogColumn) * shape->natts);
	capture->used = palloc0(sizeof(UsedColumn) * (count + 1));
	MemoryContextSwitchTo(outer);
	for (int i = 0; i < shape->natts; i++)
	{
		if (!log_column(capture, trigger, table, TupleDescAttr(shape, i), attnums, count, seen,
						&capture->log[i]))
			return;
		capture->n_log++;
	}
	capture->in_c = seen[0] == count && seen[1] == count;
}

/* Writing the log ----------------------------------------------------------------------------------- */

/* An executor would take several times as long to do the same. */
static void
open_indexes(Writer *writer)
{
	List	   *indexes = RelationGetIndexList(writer->segment);
	ListCell   *cell;

	writer->indexes = palloc(sizeof(Relation) * list_length(indexes));
	writer->infos = palloc(sizeof(IndexInfo *) * list_length(indexes));
	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), RowExclusiveLock);

		if (!index->rd_index->indisready || RelationGetIndexPredicate(index) != NIL)
		{
			index_close(index, RowExclusiveLock);
			continue;
		}
		writer->indexes[writer->n_indexes] = index;
		writer->infos[writer->n_indexes++] = BuildIndexInfo(index);
	}
}

static void
insert_into_indexes(Writer *writer, TupleTableSlot *row)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];

	for (int i = 0; i < writer->n_indexes; i++)
	{
		FormIndexDatum(writer->infos[i], row, NULL, values, nulls);
		index_insert(writer->indexes[i], values, nulls, &row->tts_tid, writer->segment, UNIQUE_CHECK_NO, false,
					 writer->infos[i]);
	}
}

static void
begin_writing(Writer *writer, const Capture *capture, Relation segment, int64 number)
{
	int			natts = RelationGetDescr(segment)->natts;

	memset(writer, 0, sizeof(Writer));
	writer->capture = capture;
	writer->segment = segment;
	writer->number = number;
	writer->xid = FullTransactionIdGetDatum(GetTopFullTransactionId());
	writer->values = palloc(sizeof(Datum) * natts);
	writer->nulls = palloc(sizeof(bool) * natts);
	writer->slots = palloc(sizeof(TupleTableSlot *) * BATCH_ROWS);
	writer->rows = AllocSetContextCreate(CurrentMemoryContext, "idivm log rows",
										 ALLOCSET_DEFAULT_SIZES);
	if (segment->rd_rel->relhasindex)
		open_indexes(writer);
}

static void
flush(Writer *writer)
{
	/* Nobody else takes back what is made of large values on the way to the table. */
	MemoryContext outer = MemoryContextSwitchTo(writer->rows);

	if (writer->n_rows == 1)
		simple_table_tuple_insert(writer->segment, writer->slots[0]);
	else if (writer->n_rows > 1)
		table_multi_insert(writer->segment, writer->slots, writer->n_rows,
						   GetCurrentCommandId(true), 0, NULL);
	for (int i = 0; i < writer->n_rows; i++)
	{
		insert_into_indexes(writer, writer->slots[i]);
		ExecClearTuple(writer->slots[i]);
	}
	MemoryContextSwitchTo(outer);
	MemoryContextReset(writer->rows);
	writer->n_rows = 0;
	writer->bytes = 0;
}

static void
write_row(Writer *writer, char operation, TupleTableSlot *old_row, TupleTableSlot *new_row)
{
	const Capture *capture = writer->capture;
	MemoryContext outer;
	HeapTuple	tuple;

	for (int i = 0; i < capture->n_log; i++)
	{
		const LogColumn *column = &capture->log[i];
		TupleTableSlot *row = column->origin == IS_OLD ? old_row
			: column->origin == IS_NEW ? new_row : NULL;

		writer->nulls[i] = false;
		if (column->origin == IS_NUMBER)
			writer->values[i] = Int64GetDatum(writer->number);
		else if (column->origin == IS_XID)
			writer->values[i] = writer->xid;
		else if (column->origin == IS_OPERATION)
			writer->values[i] = CharGetDatum(operation);
		else if (row != NULL)
		{
			writer->values[i] = row->tts_values[column->attnum - 1];
			writer->nulls[i] = row->tts_isnull[column->attnum - 1];
		}
		else
			writer->nulls[i] = true;
	}
	if (writer->n_rows == writer->n_slots)
		writer->slots[writer->n_slots++] =
			MakeSingleTupleTableSlot(RelationGetDescr(writer->segment), &TTSOpsHeapTuple);
	outer = MemoryContextSwitchTo(writer->rows);
	tuple = heap_form_tuple(RelationGetDescr(writer->segment), writer->values, writer->nulls);
	MemoryContextSwitchTo(outer);
	ExecStoreHeapTuple(tuple, writer->slots[writer->n_rows++], false);
	writer->bytes += tuple->t_len;
	if (writer->n_rows == BATCH_ROWS || writer->bytes >= BATCH_BYTES)
		flush(writer);
}

static void
end_writing(Writer *writer)
{
	flush(writer);
	for (int i = 0; i < writer->n_slots; i++)
		ExecDropSingleTupleTableSlot(writer->slots[i]);
	for (int i = 0; i < writer->n_indexes; i++)
		index_close(writer->indexes[i], RowExclusiveLock);
	/* The triggers that follow find the rows, as they do after a command of SQL. */
	CommandCounterIncrement();
}

/* Reading the transition tables --------------------------------------------------------------------- */

typedef struct
{
	Tuplestorestate *rows;
	TupleTableSlot *slot;
	AttrNumber	last;
} Reader;

static void
start_again(Reader *reader)
{
	tuplestore_select_read_pointer(reader->rows, 0);
	tuplestore_rescan(reader->rows);
}

static void
begin_reading(Reader *reader, Tuplestorestate *rows, Relation table, AttrNumber last)
{
	reader->rows = rows;
	reader->slot = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsMinimalTuple);
	reader->last = last;
}

static bool
next_row(Reader *reader)
{
	CHECK_FOR_INTERRUPTS();
	if (!tuplestore_gettupleslot(reader->rows, true, false, reader->slot))
		return false;
	slot_getsomeattrs(reader->slot, reader->last);
	return true;
}

/* Whether a column has the same value to the bit in both rows. */
static bool
same_value(const UsedColumn *column, TupleTableSlot *a, TupleTableSlot *b)
{
	int			i = column->attnum - 1;

	if (a->tts_isnull[i] || b->tts_isnull[i])
		return a->tts_isnull[i] && b->tts_isnull[i];
	if (column->len == -1)
	{
		Pointer		x = DatumGetPointer(a->tts_values[i]);
		Pointer		y = DatumGetPointer(b->tts_values[i]);

		/* So is what was toasted before and stayed: the pointer to it is copied. */
		if (VARSIZE_ANY(x) == VARSIZE_ANY(y) && memcmp(x, y, VARSIZE_ANY(x)) == 0)
			return true;
	}
	return datum_image_eq(a->tts_values[i], b->tts_values[i], column->byval, column->len);
}

typedef enum
{
	PAIR_IS_SAME,
	PAIR_IS_CHANGED,
	PAIR_IS_NONE				/* two rows of different keys */
} Pair;

static Pair
compare(const Capture *capture, TupleTableSlot *old_row, TupleTableSlot *new_row)
{
	Pair		found = PAIR_IS_SAME;

	for (int i = 0; i < capture->n_used; i++)
	{
		const UsedColumn *column = &capture->used[i];

		if (column->in_key && old_row->tts_isnull[column->attnum - 1])
			return PAIR_IS_NONE;
		if (found == PAIR_IS_CHANGED && !column->in_key)
			continue;
		if (!same_value(column, old_row, new_row))
		{
			if (column->in_key)
				return PAIR_IS_NONE;
			found = PAIR_IS_CHANGED;
		}
	}
	return found;
}

/* The operations ------------------------------------------------------------------------------------ */

static void
write_all(Writer *writer, char operation, Reader *reader)
{
	bool		is_old = operation == 'D';

	start_again(reader);
	while (next_row(reader))
		write_row(writer, operation, is_old ? reader->slot : NULL, is_old ? NULL : reader->slot);
}

/*
 * Each updated row puts its old and its new image at the same position, also where what foreign
 * keys do shares the tables. Rows whose keys move are left to the plpgsql function.
 */
static Pair
compare_all(const Capture *capture, Reader *old_rows, Reader *new_rows)
{
	Pair		found = PAIR_IS_SAME;

	start_again(old_rows);
	start_again(new_rows);
	while (next_row(old_rows))
	{
		Pair		pair;

		if (!next_row(new_rows))
			return PAIR_IS_NONE;
		pair = compare(capture, old_rows->slot, new_rows->slot);
		if (pair == PAIR_IS_NONE)
			return PAIR_IS_NONE;
		if (pair == PAIR_IS_CHANGED)
			found = PAIR_IS_CHANGED;
	}
	return next_row(new_rows) ? PAIR_IS_NONE : found;
}

static void
write_pairs(Writer *writer, Reader *old_rows, Reader *new_rows)
{
	start_again(old_rows);
	start_again(new_rows);
	while (next_row(old_rows) && next_row(new_rows))
	{
		if (compare(writer->capture, old_rows->slot, new_rows->slot) == PAIR_IS_CHANGED)
			write_row(writer, 'U', old_rows->slot, new_rows->slot);
	}
}

static bool
is_empty(Tuplestorestate *rows)
{
	return rows == NULL || tuplestore_tuple_count(rows) == 0;
}

/* Logs a statement; false if that is left to the plpgsql function, with nothing written. */
static bool
log_statement(const Capture *capture, TriggerData *trigger_data, Relation segment, int64 number)
{
	Relation	table = trigger_data->tg_relation;
	bool		is_update = TRIGGER_FIRED_BY_UPDATE(trigger_data->tg_event);
	Reader		old_rows = {0};
	Reader		new_rows = {0};
	Pair		pair = PAIR_IS_CHANGED;
	Writer		writer;

	if (!TRIGGER_FIRED_BY_INSERT(trigger_data->tg_event))
		begin_reading(&old_rows, trigger_data->tg_oldtable, table, capture->last);
	if (!TRIGGER_FIRED_BY_DELETE(trigger_data->tg_event))
		begin_reading(&new_rows, trigger_data->tg_newtable, table, capture->last);

	if (is_update && capture->keyed)
		pair = compare_all(capture, &old_rows, &new_rows);
	if (pair == PAIR_IS_CHANGED)
	{
		begin_writing(&writer, capture, segment, number);
		if (is_update && capture->keyed)
			write_pairs(&writer, &old_rows, &new_rows);
		else
		{
			if (old_rows.slot != NULL)
				write_all(&writer, 'D', &old_rows);
			if (new_rows.slot != NULL)
				write_all(&writer, 'I', &new_rows);
		}
		end_writing(&writer);
	}
	if (old_rows.slot != NULL)
		ExecDropSingleTupleTableSlot(old_rows.slot);
	if (new_rows.slot != NULL)
		ExecDropSingleTupleTableSlot(new_rows.slot);
	return pair != PAIR_IS_NONE;
}

/* Logs the row of a row trigger; false if that is left to the plpgsql function. */
static bool
log_row(const Capture *capture, TriggerData *trigger_data, Relation segment, int64 number)
{
	TriggerEvent event = trigger_data->tg_event;
	TupleTableSlot *old_row = TRIGGER_FIRED_BY_INSERT(event) ? NULL : trigger_data->tg_trigslot;
	TupleTableSlot *new_row = TRIGGER_FIRED_BY_INSERT(event) ? trigger_data->tg_trigslot
		: TRIGGER_FIRED_BY_UPDATE(event) ? trigger_data->tg_newslot : NULL;
	bool		is_pair = old_row != NULL && new_row != NULL && capture->keyed;
	Writer		writer;

	if (old_row != NULL)
		slot_getsomeattrs(old_row, capture->last);
	if (new_row != NULL)
		slot_getsomeattrs(new_row, capture->last);
	if (is_pair)
	{
		Pair		pair = compare(capture, old_row, new_row);

		if (pair != PAIR_IS_CHANGED)
			return pair == PAIR_IS_SAME;
	}
	begin_writing(&writer, capture, segment, number);
	if (is_pair)
		write_row(&writer, 'U', old_row, new_row);
	else
	{
		if (old_row != NULL)
			write_row(&writer, 'D', old_row, NULL);
		if (new_row != NULL)
			write_row(&writer, 'I', NULL, new_row);
	}
	end_writing(&writer);
	return true;
}

PG_FUNCTION_INFO_V1(idivm_capture_rows);

Datum
idivm_capture_rows(PG_FUNCTION_ARGS)
{
	TriggerData *trigger_data = (TriggerData *) fcinfo->context;
	Trigger    *trigger;
	Capture    *capture;
	Relation	segment;
	int64		number;
	bool		is_row;
	bool		done;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(trigger_data->tg_event) ||
		TRIGGER_FIRED_BY_TRUNCATE(trigger_data->tg_event) ||
		trigger_data->tg_trigger->tgnargs < 2)
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("idivm.capture_rows is for the triggers that idivm itself makes"));
	is_row = TRIGGER_FIRED_FOR_ROW(trigger_data->tg_event);
	if (!is_row && is_empty(trigger_data->tg_oldtable) && is_empty(trigger_data->tg_newtable))
		return PointerGetDatum(NULL);

	trigger = trigger_data->tg_trigger;
	capture = look_up(trigger->tgoid);
	/* The plpgsql form refuses a table that is no member. */
	if (capture->valid ? !capture->in_c
		: !is_member(trigger, trigger_data->tg_relation) || !find_log(capture, trigger->tgargs[0]))
		return call_plpgsql(fcinfo);

	number = nextval_internal(capture->sequence, false);
	/* With the next number, unless another session takes it, plpgsql looks after the log. */
	if ((number & (LOOK_EVERY - 1)) == LOOK_EVERY - 1)
		return call_plpgsql(fcinfo);
	/* Held to the end of the transaction; until then nobody widens the log or empties it. */
	segment = table_open(capture->segments[(number >> SEGMENT_BITS) & 1], RowExclusiveLock);
	if (!capture->valid)
		make_out(capture, trigger, trigger_data->tg_relation, segment);
	done = capture->in_c &&
		(is_row ? log_row(capture, trigger_data, segment, number)
		 : log_statement(capture, trigger_data, segment, number));
	table_close(segment, NoLock);
	return done ? PointerGetDatum(NULL) : call_plpgsql(fcinfo);
}
