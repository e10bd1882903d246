/*
 * What stands around a view's program at every refresh, in C: what the functions of the same names
 * in sql/functions do, without asking the catalog again for what
 * has not changed.
 *
 * A session remembers of which views it has found that all they read is as it was when they were
 * planned. It forgets that as soon as PostgreSQL tells it of any change to a table that one of them
 * reads, or to any function: whatever plans a view again replaces the view's program. For views that
 * call functions or types of users, it also forgets that after a change to any type, operator,
 * collation or the like.
 *
 * It also remembers of which views it has found that they may be maintained, until any relation, role
 * or code changes. By all this, it answers how an on_read view is to be read.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

PG_MODULE_MAGIC;

typedef struct
{
	int32		view;			/* the key */
	uint64		fits_in;		/* the generation in which it was found to fit, or 0 */
	uint64		fits_code;		/* the same of code; 0 if the view calls none that can change */
	uint64		allowed_in;		/* the same of rights */
	uint64		unsure_in;		/* the generation in which what the view reads could not be watched */
} Known;

static HTAB *known = NULL;
static HTAB *watched = NULL;

/* Goes up with every change that might matter. */
static uint64 generation = 1;

/* Goes up with every change of a function, operator, type or the like. */
static uint64 code_generation = 1;

/* Goes up with every change of a relation, a role, a function or the like. */
static uint64 rights_generation = 1;

static void
relation_changed(Datum arg, Oid relation)
{
	rights_generation++;
	if (relation == InvalidOid || hash_search(watched, &relation, HASH_FIND, NULL) != NULL)
		generation++;
}

static void
function_changed(Datum arg, int cache, uint32 hash)
{
	generation++;
	code_generation++;
	rights_generation++;
}

static void
code_changed(Datum arg, int cache, uint32 hash)
{
	code_generation++;
	rights_generation++;
}

static void
rights_changed(Datum arg, int cache, uint32 hash)
{
	rights_generation++;
}

static Known *
look_up(int32 view)
{
	Known	   *one;
	bool		found;

	if (known == NULL)
	{
		HASHCTL		by_view = {.keysize = sizeof(int32), .entrysize = sizeof(Known)};
		HASHCTL		by_oid = {.keysize = sizeof(Oid), .entrysize = sizeof(Oid)};
		const int	caches[] = {
			AGGFNOID, AMPROCNUM, CASTSOURCETARGET, COLLOID, CONSTROID, ENUMOID, NAMESPACEOID,
			OPEROID, TSCONFIGMAP, TSCONFIGOID, TSDICTOID, TYPEOID
		};
		const int	of_rights[] = {
			AUTHMEMROLEMEM, AUTHOID, DATABASEOID, FOREIGNSERVEROID, FOREIGNTABLEREL, RANGETYPE, STATEXTOID
		};

		watched = hash_create("idivm watched relations", 64, &by_oid, HASH_ELEM | HASH_BLOBS);
		known = hash_create("idivm known views", 32, &by_view, HASH_ELEM | HASH_BLOBS);
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(PROCOID, function_changed, (Datum) 0);
		for (int i = 0; i < lengthof(caches); i++)
			CacheRegisterSyscacheCallback(caches[i], code_changed, (Datum) 0);
		for (int i = 0; i < lengthof(of_rights); i++)
			CacheRegisterSyscacheCallback(of_rights[i], rights_changed, (Datum) 0);
	}
	one = hash_search(known, &view, HASH_ENTER, &found);
	if (!found)
		one->fits_in = one->fits_code = one->allowed_in = one->unsure_in = 0;
	return one;
}

/* The OID of a function, or InvalidOid. */
static Oid
find_function(const char *schema, const char *name, const Oid *types, int count)
{
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
						   PointerGetDatum(buildoidvector(types, count)),
						   ObjectIdGetDatum(get_namespace_oid(schema, false)));
}

static Oid
function_named(const char *schema, const char *name, const Oid *types, int count)
{
	Oid			found = find_function(schema, name, types, count);

	if (!OidIsValid(found))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_FUNCTION),
				errmsg("function %s.%s does not exist", schema, name));
	return found;
}

static Oid
function_of_view(const char *name)
{
	Oid			types[] = {INT4OID};

	return function_named("idivm", name, types, lengthof(types));
}

/* The result of an SQL function of a view. */
static Datum
ask(const char *name, int32 view, bool *isnull)
{
	LOCAL_FCINFO(call, 1);
	FmgrInfo	function;
	Datum		result;

	fmgr_info(function_of_view(name), &function);
	InitFunctionCallInfoData(*call, &function, 1, InvalidOid, NULL, NULL);
	call->args[0].value = Int32GetDatum(view);
	call->args[0].isnull = false;
	result = FunctionCallInvoke(call);
	*isnull = call->isnull;
	return result;
}

/*
 * Has changes of what a view reads noticed from now on; false where they would not say all. Also tells
 * whether the view calls code that can change.
 */
static bool
watch(int32 view, bool *calls_code)
{
	Datum		members;
	Datum	   *oids;
	int			count;
	bool		isnull;

	members = ask("watched_by", view, &isnull);
	*calls_code = false;
	if (isnull)
		return false;
	deconstruct_array(DatumGetArrayTypeP(members), OIDOID, sizeof(Oid), true, TYPALIGN_INT,
					  &oids, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		Oid			member = DatumGetObjectId(oids[i]);

		if (OidIsValid(member))
			hash_search(watched, &member, HASH_ENTER, NULL);
		else
			*calls_code = true;
	}
	return true;
}

/* Whether this session knows that nothing has drifted for a view. */
static bool
is_known_to_fit(int32 view)
{
	Known	   *one = look_up(view);

	return one->fits_in == generation && (one->fits_code == 0 || one->fits_code == code_generation);
}

static ArrayType *
array_of(int32 *views, int count)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		elements[i] = Int32GetDatum(views[i]);
	return construct_array(elements, count, INT4OID, sizeof(int32), true, TYPALIGN_INT);
}

/* Those of some views that have drifted, as the catalogs alone show it in the active snapshot. */
static ArrayType *
look_at(int32 *views, int count)
{
	Oid			types[] = {INT4ARRAYOID};
	Oid			asked;

	if (count == 1)
	{
		Datum		drifted = OidFunctionCall1(function_of_view("looks_drifted"), Int32GetDatum(views[0]));

		return array_of(views, DatumGetBool(drifted) ? 1 : 0);
	}
	asked = function_named("idivm", "drifted_views", types, lengthof(types));
	return DatumGetArrayTypeP(OidFunctionCall1(asked, PointerGetDatum(array_of(views, count))));
}

static bool
contains(ArrayType *drifted, int32 view)
{
	int32	   *elements = (int32 *) ARR_DATA_PTR(drifted);
	int			count = ArrayGetNItems(ARR_NDIM(drifted), ARR_DIMS(drifted));

	for (int i = 0; i < count; i++)
		if (elements[i] == view)
			return true;
	return false;
}

/*
 * Those of some views that have drifted. Of views of which the session knows that nothing has, the catalogs are not
 * asked.
 *
 * A snapshot that lasts is older than what the session has been told of, but not older than what it knows: that
 * was found before the snapshot was taken, or in the snapshot as well. What changed a table in between would have
 * been told before its lock was released.
 */
static ArrayType *
drifted_of(int32 *views, int count)
{
	int32	   *asked = palloc(sizeof(int32) * Max(count, 1));
	bool	   *may_last;
	bool	   *calls_code;
	int			n = 0;
	uint64		begun;
	uint64		code_begun;
	ArrayType  *drifted;
	ArrayType  *in_snapshot = NULL;
	bool		any_may_last = false;

	/* Who changes a table shows it first and tells it afterwards. */
	AcceptInvalidationMessages();
	for (int i = 0; i < count; i++)
		if (!is_known_to_fit(views[i]))
			asked[n++] = views[i];
	if (n == 0)
		return array_of(NULL, 0);
	/* A query with parallel workers takes no other snapshot. */
	if (IsInParallelMode())
		return look_at(asked, n);
	begun = generation;
	code_begun = code_generation;
	may_last = palloc(sizeof(bool) * n);
	calls_code = palloc(sizeof(bool) * n);
	/* The snapshot is taken after the tables are watched, so what it misses is told. */
	for (int i = 0; i < n; i++)
	{
		may_last[i] = watch(asked[i], &calls_code[i]);
		any_may_last = any_may_last || may_last[i];
		if (!may_last[i])
			look_up(asked[i])->unsure_in = begun;
	}
	if (IsolationUsesXactSnapshot())
	{
		in_snapshot = look_at(asked, n);
		if (!any_may_last)
			return in_snapshot;
	}
	PushActiveSnapshot(GetLatestSnapshot());
	drifted = look_at(asked, n);
	PopActiveSnapshot();
	for (int i = 0; i < n; i++)
		if (may_last[i] && !contains(drifted, asked[i])
			&& (in_snapshot == NULL || !contains(in_snapshot, asked[i]))
			&& begun == generation && (!calls_code[i] || code_begun == code_generation))
		{
			Known	   *one = look_up(asked[i]);

			one->fits_in = begun;
			one->fits_code = calls_code[i] ? code_begun : 0;
		}
	return in_snapshot != NULL ? in_snapshot : drifted;
}

PG_FUNCTION_INFO_V1(idivm_has_drifted);

Datum
idivm_has_drifted(PG_FUNCTION_ARGS)
{
	int32		view = PG_GETARG_INT32(0);

	PG_RETURN_BOOL(contains(drifted_of(&view, 1), view));
}

PG_FUNCTION_INFO_V1(idivm_drifted_among);

Datum
idivm_drifted_among(PG_FUNCTION_ARGS)
{
	Datum	   *elements;
	int32	   *views;
	int			count;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), INT4OID, sizeof(int32), true, TYPALIGN_INT, &elements, NULL, &count);
	views = palloc(sizeof(int32) * Max(count, 1));
	for (int i = 0; i < count; i++)
		views[i] = DatumGetInt32(elements[i]);
	PG_RETURN_ARRAYTYPE_P(drifted_of(views, count));
}

/* Why a view may not be maintained, as the active snapshot shows it, or NULL. */
static text *
refusal_of(int32 view)
{
	bool		isnull;
	Datum		refusal = ask("looks_forbidden", view, &isnull);

	return isnull ? NULL : DatumGetTextPP(refusal);
}

PG_FUNCTION_INFO_V1(idivm_refusal);

/*
 * Why a view may not be maintained. If the session knows that it may, the catalogs are not asked. For a snapshot that
 * lasts, the same holds as for what has drifted.
 */
Datum
idivm_refusal(PG_FUNCTION_ARGS)
{
	int32		view = PG_GETARG_INT32(0);
	text	   *refusal = NULL;
	uint64		begun;

	AcceptInvalidationMessages();
	if (look_up(view)->allowed_in == rights_generation)
		PG_RETURN_NULL();
	begun = rights_generation;
	if (IsolationUsesXactSnapshot())
		refusal = refusal_of(view);
	if (refusal == NULL)
	{
		PushActiveSnapshot(GetLatestSnapshot());
		refusal = refusal_of(view);
		PopActiveSnapshot();
	}
	if (refusal != NULL)
		PG_RETURN_TEXT_P(refusal);
	look_up(view)->allowed_in = begun;
	PG_RETURN_NULL();
}

/* The caller needs the rights that a statement with the function's name in it would need. */
static void
require_rights(const char *schema, Oid function, const char *name)
{
	Oid			namespace = get_namespace_oid(schema, false);
	AclResult	may;

#if PG_VERSION_NUM >= 160000
	may = object_aclcheck(NamespaceRelationId, namespace, GetUserId(), ACL_USAGE);
#else
	may = pg_namespace_aclcheck(namespace, GetUserId(), ACL_USAGE);
#endif
	if (may != ACLCHECK_OK)
		aclcheck_error(may, OBJECT_SCHEMA, schema);
#if PG_VERSION_NUM >= 160000
	may = object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);
#else
	may = pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);
#endif
	if (may != ACLCHECK_OK)
		aclcheck_error(may, OBJECT_FUNCTION, name);
}

PG_FUNCTION_INFO_V1(idivm_run_program);

/* Calls the refresh function of a view, whose name a statement would have to be parsed for. */
Datum
idivm_run_program(PG_FUNCTION_ARGS)
{
	LOCAL_FCINFO(call, 3);
	FmgrInfo	function;
	char		name[NAMEDATALEN];
	Oid			types[] = {get_fn_expr_argtype(fcinfo->flinfo, 1), BOOLOID, BOOLOID};
	Oid			program;
	Datum		done;

	snprintf(name, sizeof(name), "refresh_%d", PG_GETARG_INT32(0));
	program = function_named("idivm_state", name, types, lengthof(types));
	require_rights("idivm_state", program, name);
	fmgr_info(program, &function);
	InitFunctionCallInfoData(*call, &function, lengthof(types), InvalidOid, NULL, NULL);
	for (int i = 0; i < lengthof(types); i++)
		call->args[i] = fcinfo->args[i + 1];
	done = FunctionCallInvoke(call);
	if (call->isnull)
		PG_RETURN_NULL();
	return done;
}

PG_FUNCTION_INFO_V1(idivm_has_any);

/* Calls the function that says whether anything in a log is pending. */
Datum
idivm_has_any(PG_FUNCTION_ARGS)
{
	char		name[NAMEDATALEN];
	Oid			types[] = {get_fn_expr_argtype(fcinfo->flinfo, 1)};
	Oid			asked;

	snprintf(name, sizeof(name), "s%d_any", PG_GETARG_INT32(0));
	asked = function_named("idivm_log", name, types, lengthof(types));
	require_rights("idivm_log", asked, name);
	return OidFunctionCall1(asked, PG_GETARG_DATUM(1));
}

static bool
has_pages(Oid relation)
{
	Relation	one = try_relation_open(relation, AccessShareLock);
	bool		any;

	if (one == NULL)
		return false;
	any = RelationGetNumberOfBlocks(one) > 0;
	relation_close(one, AccessShareLock);
	return any;
}

PG_FUNCTION_INFO_V1(idivm_has_entries);

Datum
idivm_has_entries(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(has_pages(PG_GETARG_OID(0)) || has_pages(PG_GETARG_OID(1)));
}

/* Reads of on_read views ---------------------------------------------------------------------------- */

/* A row of the catalog, found by a unique column in the active snapshot. */
typedef struct
{
	Relation	table;
	SysScanDesc scan;
	HeapTuple	row;
} Found;

static Oid
relation_named(const char *schema, const char *name)
{
	return get_relname_relid(name, get_namespace_oid(schema, false));
}

/* The index on this column, or on it and another one, with or without a predicate, or InvalidOid. */
static Oid
index_on(Relation table, AttrNumber column, bool is_partial)
{
	List	   *indexes = RelationGetIndexList(table);
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		bool		fits = index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisvalid &&
			index->rd_index->indnatts <= 2 && index->rd_index->indkey.values[0] == column &&
			heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) != is_partial;

		index_close(index, NoLock);
		if (fits)
			return lfirst_oid(cell);
	}
	return InvalidOid;
}

static bool
find_row(Found *found, Oid table, const char *column, RegProcedure equal, Datum value)
{
	AttrNumber	attnum = get_attnum(table, column);
	Oid			index;
	ScanKeyData key;

	found->table = table_open(table, AccessShareLock);
	index = index_on(found->table, attnum, false);
	ScanKeyInit(&key, attnum, BTEqualStrategyNumber, equal, value);
	found->scan = systable_beginscan(found->table, index, OidIsValid(index), GetActiveSnapshot(), 1, &key);
	found->row = systable_getnext(found->scan);
	return HeapTupleIsValid(found->row);
}

static Datum
field_of(const Found *found, const char *column, bool *isnull)
{
	return heap_getattr(found->row, get_attnum(RelationGetRelid(found->table), column),
						RelationGetDescr(found->table), isnull);
}

static void
end_finding(Found *found)
{
	systable_endscan(found->scan);
	table_close(found->table, NoLock);
}

/* What a view has consumed: the fields of its watermark, and the oldest transaction that it may not have seen. */
typedef struct
{
	Datum		snapshot;
	uint64		floor;
	uint64		own_xid;		/* 0 if there is none */
	Jsonb	   *own_marks;
} Mark;

/* The last statement of its own transaction that a view has consumed from a source. */
static int64
own_mark(const Mark *mark, int32 source)
{
	JsonbValue	value;
	char		key[16];

	snprintf(key, sizeof(key), "%d", source);
	if (mark->own_marks == NULL ||
		getKeyJsonValueFromContainer(&mark->own_marks->root, key, strlen(key), &value) == NULL)
		return 0;
	return DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(value.val.numeric)));
}

static void
read_mark(HeapTupleHeader row, Mark *mark)
{
	bool		isnull;
	Datum		own_xid = GetAttributeByNum(row, 2, &isnull);
	Datum		own_marks;

	mark->own_xid = isnull ? 0 : DatumGetUInt64(own_xid);
	own_marks = GetAttributeByNum(row, 3, &isnull);
	mark->own_marks = isnull ? NULL : DatumGetJsonbPCopy(own_marks);
	mark->snapshot = PointerGetDatum(PG_DETOAST_DATUM_COPY(GetAttributeByNum(row, 1, &isnull)));
	mark->floor = DatumGetUInt64(OidFunctionCall1(F_PG_SNAPSHOT_XMIN, mark->snapshot));
}

/* Whether a view is ready; if so, with its watermark. */
static bool
view_is_ready(int32 view, Mark *mark)
{
	Found		found;
	bool		isnull;
	bool		ready;

	ready = find_row(&found, relation_named("idivm", "views"), "id", F_INT4EQ, Int32GetDatum(view)) &&
		strcmp(TextDatumGetCString(field_of(&found, "status", &isnull)), "ready") == 0;
	end_finding(&found);
	if (!ready)
		return false;
	ready = find_row(&found, relation_named("idivm", "watermarks"), "view", F_INT4EQ, Int32GetDatum(view));
	if (ready)
	{
		int64		cluster = DatumGetInt64(field_of(&found, "cluster", &isnull));
		HeapTupleHeader row = DatumGetHeapTupleHeader(field_of(&found, "mark", &isnull));
		Datum		snapshot = GetAttributeByNum(row, 1, &isnull);
		Datum		now = OidFunctionCall0(F_PG_CURRENT_SNAPSHOT);

		/* As idivm.is_foreign and idivm.cluster have it. */
		ready = !isnull &&
			cluster == ((int64) GetSystemIdentifier() ^ (int64) RelationGetRelid(found.table)) &&
			DatumGetUInt64(OidFunctionCall1(F_PG_SNAPSHOT_XMAX, snapshot)) <=
			DatumGetUInt64(OidFunctionCall1(F_PG_SNAPSHOT_XMAX, now));
		if (ready)
			read_mark(row, mark);
	}
	end_finding(&found);
	return ready;
}

/* Whether the caller sees all rows of a source's table, and the table is no content that a reader sees merged. */
static bool
table_is_readable(int32 source)
{
	Found		found;
	bool		isnull;
	Oid			table = InvalidOid;
	bool		merged;

	if (find_row(&found, relation_named("idivm", "sources"), "id", F_INT4EQ, Int32GetDatum(source)))
		table = DatumGetObjectId(field_of(&found, "relation", &isnull));
	end_finding(&found);
	if (!OidIsValid(table) || check_enable_rls(table, InvalidOid, true) == RLS_ENABLED)
		return false;
	if (pg_class_aclcheck(table, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(table, GetUserId(), ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
		return false;
	merged = find_row(&found, relation_named("idivm", "views"), "state", F_OIDEQ, ObjectIdGetDatum(table));
	if (merged)
	{
		field_of(&found, "read_from", &isnull);
		merged = !isnull;
	}
	end_finding(&found);
	return !merged;
}

/* Whether a file was emptied after the active snapshot was taken. */
static bool
is_recycled(Relation segment)
{
	Found		found;
	bool		recycled;

	recycled = !find_row(&found, RelationRelationId, "oid", F_OIDEQ, ObjectIdGetDatum(RelationGetRelid(segment))) ||
		((Form_pg_class) GETSTRUCT(found.row))->relfilenode != segment->rd_rel->relfilenode;
	end_finding(&found);
	return recycled;
}

/* So many rows of a log are looked at. */
#define MOST_LOOKED_AT 64

/*
 * Whether a row of a log segment, or a TRUNCATE in it, that the active snapshot sees is pending, or may be, as there are
 * many: as idivm.is_pending_after has it. Later transactions come first. False if no index tells.
 */
static bool
has_pending(Relation segment, bool of_truncate, const Mark *mark, int32 source, bool *pending)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(segment), "xid");
	AttrNumber	number = get_attnum(RelationGetRelid(segment), "seq");
	Oid			oid = index_on(segment, attnum, of_truncate);
	Relation	index;
	bool		by_number;
	ScanKeyData key;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	bool		isnull;
	int			looked_at = 0;
	int64		mine = own_mark(mark, source);

	*pending = false;
	if (!OidIsValid(oid))
		return false;
	index = index_open(oid, AccessShareLock);
	by_number = index->rd_index->indnatts == 2 && index->rd_index->indkey.values[1] == number;
#if PG_VERSION_NUM >= 180000
	scan = index_beginscan(segment, index, GetActiveSnapshot(), NULL, 1, 0);
#else
	scan = index_beginscan(segment, index, GetActiveSnapshot(), 1, 0);
#endif
	ScanKeyInit(&key, 1, BTGreaterEqualStrategyNumber, F_XID8GE, UInt64GetDatum(mark->floor));
	index_rescan(scan, &key, 1, NULL, 0);
	slot = table_slot_create(segment, NULL);
	while (!*pending && index_getnext_slot(scan, BackwardScanDirection, slot))
	{
		uint64		xid = DatumGetUInt64(slot_getattr(slot, attnum, &isnull));

		if (xid < mark->floor)
			break;
		if (++looked_at > MOST_LOOKED_AT)
			*pending = true;
		else if (xid != mark->own_xid)
			*pending = !DatumGetBool(OidFunctionCall2(F_PG_VISIBLE_IN_SNAPSHOT, UInt64GetDatum(xid), mark->snapshot));
		else if (DatumGetInt64(slot_getattr(slot, number, &isnull)) > mine)
			*pending = true;
		else if (by_number)
		{
			/* The other rows of this transaction have smaller numbers. */
			ScanKeyInit(&key, 1, BTLessStrategyNumber, F_XID8LT, UInt64GetDatum(xid));
			index_rescan(scan, &key, 1, NULL, 0);
		}
	}
	ExecDropSingleTupleTableSlot(slot);
	index_endscan(scan);
	index_close(index, NoLock);
	return true;
}

/* Whether a read can merge the changes of a source, if there are `pending` ones. */
static bool
is_mergeable(int32 source, bool is_constant, const Mark *mark, int64 most_bytes, bool *pending)
{
	if (!table_is_readable(source))
		return false;
	for (int i = 0; i < 2; i++)
	{
		char		name[NAMEDATALEN];
		Relation	segment;
		bool		changed;
		bool		truncated;
		bool		mergeable;

		snprintf(name, sizeof(name), "s%d_%c", source, "ab"[i]);
		segment = try_relation_open(relation_named("idivm_log", name), AccessShareLock);
		if (segment == NULL)
			return false;
		mergeable = !is_recycled(segment);
		if (mergeable && RelationGetNumberOfBlocks(segment) > 0)
		{
			mergeable = (int64) RelationGetNumberOfBlocks(segment) * BLCKSZ <= most_bytes &&
				has_pending(segment, false, mark, source, &changed);
			if (mergeable && changed)
			{
				*pending = true;
				mergeable = !is_constant && has_pending(segment, true, mark, source, &truncated) && !truncated;
			}
		}
		relation_close(segment, NoLock);
		if (!mergeable)
			return false;
	}
	return true;
}

/* Whether nothing that a view reads has drifted; false where that cannot be remembered. */
static bool
fits(int32 view)
{
	if (is_known_to_fit(view))
		return true;
	if (look_up(view)->unsure_in == generation || IsInParallelMode())
		return false;
	drifted_of(&view, 1);
	return is_known_to_fit(view);
}

PG_FUNCTION_INFO_V1(idivm_usual_read);

/*
 * How a read of an on_read view computes its rows: 'N' or 'C' as in idivm.read_kind, or NULL if that is to be found out
 * in SQL: in doubt, and in a transaction that has written.
 */
Datum
idivm_usual_read(PG_FUNCTION_ARGS)
{
	int32		view = PG_GETARG_INT32(0);
	ArrayType  *sources[] = {PG_GETARG_ARRAYTYPE_P(1), PG_GETARG_ARRAYTYPE_P(2)};
	int64		most_bytes = PG_GETARG_INT64(3);
	Mark		mark;
	bool		pending = false;

	AcceptInvalidationMessages();
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) || !fits(view) || !view_is_ready(view, &mark))
		PG_RETURN_NULL();
	for (int constant = 0; constant < 2; constant++)
	{
		int32	   *ids = (int32 *) ARR_DATA_PTR(sources[constant]);
		int			count = ArrayGetNItems(ARR_NDIM(sources[constant]), ARR_DIMS(sources[constant]));

		for (int i = 0; i < count; i++)
			if (!is_mergeable(ids[i], constant == 1, &mark, most_bytes, &pending))
				PG_RETURN_NULL();
	}
	PG_RETURN_CHAR(pending ? 'C' : 'N');
}
