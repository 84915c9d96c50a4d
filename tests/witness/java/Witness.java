import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.paimon.AppendOnlyFileStore;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.PagedList;
import org.apache.paimon.append.AppendCompactCoordinator;
import org.apache.paimon.append.AppendCompactTask;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.consumer.Consumer;
import org.apache.paimon.data.BinaryArray;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.index.BucketAssigner;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.index.SimpleHashBucketAssigner;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.manifest.ManifestCommittable;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.operation.BaseAppendFileStoreWrite;
import org.apache.paimon.operation.LocalOrphanFilesClean;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.rest.auth.DLFDefaultSigner;
import org.apache.paimon.rest.auth.DLFOpenApiSigner;
import org.apache.paimon.rest.auth.DLFRequestSigner;
import org.apache.paimon.rest.auth.DLFToken;
import org.apache.paimon.rest.auth.RESTAuthParameter;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.stats.SimpleStats;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableScan;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

/**
 * Paimon's Java as a process: one JSON request per line in, one JSON reply per line out.
 *
 * <p>The protocol is that of tests/interop/driver_loop.py, but for rows: they stand in the requests and replies, in the
 * encoding of tests/interop/values.py. Every request but "about" and "picks" names a "warehouse" and a "table" ("db.t",
 * "db.t$branch_b"), and may have "options", dynamic ones of the table, and "catalog", those of the catalog.
 */
public final class Witness {

    private final IOManager ioManager;
    private final AtomicLong identifiers = new AtomicLong();

    private Witness(IOManager ioManager) {
        this.ioManager = ioManager;
    }

    public static void main(String[] args) throws Exception {
        PrintStream replies = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // what libraries print does not belong to the replies
        String spill = Files.createTempDirectory("witness").toString();
        try (IOManager ioManager = IOManager.create(spill)) {
            Witness witness = new Witness(ioManager);
            BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                Map<String, Object> reply = new LinkedHashMap<>();
                try {
                    reply.put("result", witness.answer(Json.parsed(line)));
                    reply.put("ok", true);
                } catch (Throwable error) {
                    StringWriter trace = new StringWriter();
                    error.printStackTrace(new PrintWriter(trace));
                    reply.put("ok", false);
                    reply.put("error", trace.toString());
                }
                replies.println(Json.text(reply));
            }
        }
    }

    private Object answer(JsonNode request) throws Exception {
        switch (request.get("op").textValue()) {
            case "about":
                return about();
            case "sign":
                return sign(request);
            case "picks":
                return Trees.picks(request.get("trees"));
            case "create_table":
                return createTable(request);
            case "names":
                return names(catalog(request));
            case "pages":
                return pages(request, catalog(request));
            case "view":
                return Stored.view(request, catalog(request));
            case "function":
                return Stored.function(request, catalog(request));
            case "facts":
                return facts(request, catalog(request));
            case "catalog_tag":
                catalog(request)
                        .createTag(
                                Identifier.fromString(request.get("table").textValue()),
                                request.get("tag").textValue(),
                                request.get("snapshot").longValue(),
                                null,
                                false);
                return null;
            case "catalog_tags":
                return catalogTags(request, catalog(request));
            case "rename_table":
                catalog(request)
                        .renameTable(
                                Identifier.fromString(request.get("table").textValue()),
                                Identifier.fromString(request.get("to").textValue()),
                                false);
                return null;
            case "drop_table":
                catalog(request).dropTable(Identifier.fromString(request.get("table").textValue()), false);
                return null;
            default:
                return ofTable(request, table(request));
        }
    }

    private Object ofTable(JsonNode request, FileStoreTable table) throws Exception {
        switch (request.get("op").textValue()) {
            case "write":
                return write(request, table);
            case "compact":
                return compact(request, table);
            case "read":
                return read(request, isSystem(request.get("table").textValue()) ? null : table);
            case "stream":
                return stream(request);
            case "files":
                return files(request, table);
            case "create_tag":
                createTag(request, table);
                return null;
            case "delete_tag":
                table.deleteTag(request.get("tag").textValue());
                return null;
            case "create_branch":
                createBranch(request, table);
                return null;
            case "delete_branch":
                table.deleteBranch(request.get("branch").textValue());
                return null;
            case "fast_forward":
                table.fastForward(request.get("branch").textValue());
                return null;
            case "rollback":
                rollback(request, table);
                return null;
            case "expire":
                return expire(request, table);
            case "remove_orphans":
                return new LocalOrphanFilesClean(table, request.get("older_than_millis").longValue())
                        .clean()
                        .getDeletedFileCount();
            case "set_consumer":
                table.consumerManager()
                        .resetConsumer(
                                request.get("consumer").textValue(),
                                new Consumer(request.get("next_snapshot").longValue()));
                return null;
            case "consumers":
                return new TreeMap<>(table.consumerManager().consumers());
            case "tags":
                Map<String, Long> tags = new TreeMap<>();
                table.tagManager().tagObjects().forEach(tag -> tags.put(tag.getRight(), tag.getLeft().id()));
                return tags;
            case "branches":
                return table.branchManager().branches();
            case "alter_table":
                alter(request);
                return null;
            default:
                throw new IllegalArgumentException("no operation " + request.get("op"));
        }
    }

    private static Map<String, Object> about() {
        Map<String, Object> about = new LinkedHashMap<>();
        about.put("java", System.getProperty("java.version"));
        return about;
    }

    /** The headers that sign a request of a REST catalog, with the nonce of the caller. */
    private static Object sign(JsonNode request) throws Exception {
        DLFRequestSigner signer =
                request.get("algorithm").textValue().equals("default")
                        ? new DLFDefaultSigner(request.get("region").textValue())
                        : new DLFOpenApiSigner();
        RESTAuthParameter parameter =
                new RESTAuthParameter(
                        request.get("path").textValue(),
                        texts(request.get("query")),
                        request.get("method").textValue(),
                        request.get("body").textValue());
        DLFToken token =
                new DLFToken(
                        request.get("id").textValue(),
                        request.get("secret").textValue(),
                        request.get("token").textValue(),
                        null);
        String host = request.get("host").textValue();
        Instant at = Instant.ofEpochSecond(request.get("at").longValue());
        Map<String, String> headers =
                new TreeMap<>(signer.signHeaders(parameter.data(), at, token.getSecurityToken(), host));
        headers.computeIfPresent("x-acs-signature-nonce", (key, old) -> request.get("nonce").textValue());
        headers.put("Authorization", signer.authorization(parameter, token, host, headers));
        return headers;
    }

    // catalog

    private static Catalog catalog(JsonNode request) {
        Options options = new Options();
        options.set("warehouse", request.get("warehouse").textValue());
        options.set("cache-enabled", "false");
        texts(request.get("catalog")).forEach(options::set);
        return CatalogFactory.createCatalog(CatalogContext.create(options));
    }

    /** Names of all tables, by database. */
    private static Object names(Catalog catalog) throws Exception {
        Map<String, List<String>> names = new TreeMap<>();
        for (String database : catalog.listDatabases()) {
            names.put(database, catalog.listTables(database).stream().sorted().toList());
        }
        return names;
    }

    /** Names of the tables of "database" that are like "pattern", of pages of "size", in three ways. */
    private static Object pages(JsonNode request, Catalog catalog) throws Exception {
        String database = request.get("database").textValue();
        Integer size = request.get("size").intValue();
        String pattern = request.get("pattern").textValue();
        List<String> names = new ArrayList<>();
        List<String> details = new ArrayList<>();
        List<String> everywhere = new ArrayList<>();
        String token = null;
        do {
            PagedList<String> page = catalog.listTablesPaged(database, size, token, pattern, null);
            names.addAll(page.getElements());
            token = page.getNextPageToken();
        } while (token != null);
        do {
            PagedList<Table> page = catalog.listTableDetailsPaged(database, size, token, pattern, null);
            page.getElements().forEach(table -> details.add(table.name()));
            token = page.getNextPageToken();
        } while (token != null);
        do {
            PagedList<Identifier> page = catalog.listTablesPagedGlobally(database, pattern, size, token);
            page.getElements().forEach(name -> everywhere.add(name.getTableName()));
            token = page.getNextPageToken();
        } while (token != null);
        return Map.of("names", names, "details", details, "everywhere", everywhere);
    }

    /** What the catalog says of a table: rows by partition and of the newest snapshot, and its snapshots. */
    private static Object facts(JsonNode request, Catalog catalog) throws Exception {
        Identifier table = Identifier.fromString(request.get("table").textValue());
        Map<String, Long> partitions = new TreeMap<>();
        catalog.listPartitions(table).forEach(each -> partitions.put(each.spec().toString(), each.recordCount()));
        List<Long> snapshots = new ArrayList<>();
        catalog.listSnapshotsPaged(table, 100, null).getElements().forEach(each -> snapshots.add(each.id()));
        return Map.of(
                "partitions",
                partitions,
                "rows",
                catalog.loadSnapshot(table).get().recordCount(),
                "snapshots",
                snapshots,
                "newest",
                catalog.loadSnapshot(table, "LATEST").get().id());
    }

    private static Object catalogTags(JsonNode request, Catalog catalog) throws Exception {
        Identifier table = Identifier.fromString(request.get("table").textValue());
        Map<String, Long> tags = new TreeMap<>();
        for (String name : catalog.listTagsPaged(table, 100, null, null).getElements()) {
            tags.put(name, catalog.getTag(table, name).snapshot().id());
        }
        return tags;
    }

    private static FileStoreTable table(JsonNode request) throws Exception {
        String name = request.get("table").textValue();
        if (isSystem(name)) {
            name = name.substring(0, name.indexOf('$'));
        }
        FileStoreTable table = (FileStoreTable) catalog(request).getTable(Identifier.fromString(name));
        Map<String, String> options = texts(request.get("options"));
        return options.isEmpty() ? table : table.copy(options);
    }

    private static boolean isSystem(String name) {
        return name.contains("$audit_log") || name.contains("$binlog");
    }

    private static Object createTable(JsonNode request) throws Exception {
        Identifier identifier = Identifier.fromString(request.get("table").textValue());
        Schema.Builder schema = Schema.newBuilder();
        AtomicInteger ids = new AtomicInteger(-1); // the builder numbers the fields anew
        for (JsonNode field : request.get("fields")) {
            schema.column(field.get(0).textValue(), DataTypeJsonParser.parseDataType(field.get(1), ids));
        }
        schema.primaryKey(names(request.get("primary_key")));
        schema.partitionKeys(names(request.get("partition_by")));
        schema.options(texts(request.get("options")));
        Catalog catalog = catalog(request);
        catalog.createDatabase(identifier.getDatabaseName(), true);
        catalog.createTable(identifier, schema.build(), false);
        return null;
    }

    private static void alter(JsonNode request) throws Exception {
        List<SchemaChange> changes = new ArrayList<>();
        for (JsonNode change : request.get("changes")) {
            String name = change.get(1).textValue();
            switch (change.get(0).textValue()) {
                case "add":
                    changes.add(SchemaChange.addColumn(name, type(change.get(2))));
                    break;
                case "drop":
                    changes.add(SchemaChange.dropColumn(name));
                    break;
                case "rename":
                    changes.add(SchemaChange.renameColumn(name, change.get(2).textValue()));
                    break;
                case "retype":
                    changes.add(SchemaChange.updateColumnType(name, type(change.get(2))));
                    break;
                case "set":
                    changes.add(SchemaChange.setOption(name, change.get(2).textValue()));
                    break;
                default:
                    throw new IllegalArgumentException("no change " + change);
            }
        }
        catalog(request).alterTable(Identifier.fromString(request.get("table").textValue()), changes, false);
    }

    private static org.apache.paimon.types.DataType type(JsonNode json) {
        return DataTypeJsonParser.parseDataType(json, new AtomicInteger(-1));
    }

    // rows in

    /**
     * One commit, and the compactions that go with it.
     *
     * <p>"rows", "kinds" (or null), "overwrite" (static partition, {} for the table, or null), "user", "identifier",
     * "watermark".
     */
    private Object write(JsonNode request, FileStoreTable table) throws Exception {
        RowType type = table.rowType();
        JsonNode kinds = request.get("kinds");
        boolean overwrites = present(request.get("overwrite"));
        long identifier = identifier(request);
        try (TableWriteImpl<?> write = table.newWrite(user(request)).withIOManager(ioManager);
                TableCommitImpl commit = table.newCommit(user(request))) {
            write.withIgnorePreviousFiles(overwrites);
            if (overwrites) {
                commit.withOverwrite(texts(request.get("overwrite")));
            }
            BucketAssigner assigner = assigner(request, table, overwrites);
            RowPartitionKeyExtractor extractor = new RowPartitionKeyExtractor(table.schema());
            int place = 0;
            for (JsonNode json : request.get("rows")) {
                GenericRow row = Rows.row(json, type);
                if (present(kinds)) {
                    row.setRowKind(RowKind.fromShortString(kinds.get(place).textValue()));
                }
                if (assigner == null) {
                    write.write(row);
                } else {
                    BinaryRow key = extractor.trimmedPrimaryKey(row);
                    write.write(row, assigner.assign(extractor.partition(row), key.hashCode()));
                }
                place++;
            }
            Long watermark = present(request.get("watermark")) ? request.get("watermark").longValue() : null;
            ManifestCommittable committable = new ManifestCommittable(identifier, watermark);
            write.prepareCommit(true, identifier).forEach(committable::addFileCommittable);
            if (request.path("once").asBoolean()) {
                return commit.filterAndCommitMultiple(List.of(committable));
            }
            commit.commit(committable);
        }
        return null;
    }

    /** What gives keys their buckets where buckets are added as keys arrive; null for other tables. */
    private BucketAssigner assigner(JsonNode request, FileStoreTable table, boolean overwrites) {
        if (table.bucketMode() != BucketMode.HASH_DYNAMIC) {
            return null;
        }
        CoreOptions options = table.coreOptions();
        long target = options.dynamicBucketTargetRowNum();
        int most = options.dynamicBucketMaxBuckets();
        return overwrites
                ? new SimpleHashBucketAssigner(1, 0, target, most)
                : new HashBucketAssigner(
                        table.snapshotManager(),
                        user(request),
                        table.store().newIndexFileHandler(),
                        1,
                        1,
                        0,
                        target,
                        most);
    }

    /** Compact all buckets, "full" or as the tree asks for; the number of commit messages. */
    private Object compact(JsonNode request, FileStoreTable table) throws Exception {
        FileStoreTable compacting = table.copy(Map.of("write-only", "false"));
        boolean full = request.get("full").booleanValue();
        long identifier = identifier(request);
        try (TableCommitImpl commit = compacting.newCommit(user(request))) {
            List<CommitMessage> messages = new ArrayList<>();
            if (compacting.bucketMode() == BucketMode.BUCKET_UNAWARE) {
                BaseAppendFileStoreWrite write = ((AppendOnlyFileStore) compacting.store()).newWrite(user(request));
                write.withIOManager(ioManager);
                for (AppendCompactTask task : new AppendCompactCoordinator(compacting, false).run()) {
                    messages.add(task.doCompact(compacting, write));
                }
                write.close();
            } else {
                try (TableWriteImpl<?> write = compacting.newWrite(user(request)).withIOManager(ioManager)) {
                    for (Map.Entry<BinaryRow, Integer> bucket : buckets(compacting)) {
                        write.compact(bucket.getKey(), bucket.getValue(), full);
                    }
                    messages.addAll(write.prepareCommit(true, identifier));
                }
            }
            commit.commit(identifier, messages);
            return messages.size();
        }
    }

    private static Set<Map.Entry<BinaryRow, Integer>> buckets(FileStoreTable table) {
        Set<Map.Entry<BinaryRow, Integer>> buckets = new LinkedHashSet<>();
        for (ManifestEntry entry : table.store().newScan().plan().files()) {
            buckets.add(Map.entry(entry.partition().copy(), entry.bucket()));
        }
        return buckets;
    }

    // rows out

    /** "rows" and their "kinds"; "where" is a conjunction of [method, column, literals]; null table: a system table. */
    private Object read(JsonNode request, FileStoreTable fileStoreTable) throws Exception {
        Table table = fileStoreTable;
        if (table == null) {
            table = catalog(request).getTable(Identifier.fromString(request.get("table").textValue()));
            table = table.copy(texts(request.get("options")));
        }
        ReadBuilder builder = table.newReadBuilder();
        if (present(request.get("where"))) {
            PredicateBuilder predicates = new PredicateBuilder(table.rowType());
            List<Predicate> terms = new ArrayList<>();
            for (JsonNode term : request.get("where")) {
                terms.add(predicate(predicates, table.rowType(), term));
            }
            builder.withFilter(PredicateBuilder.and(terms));
        }
        return rows(table.rowType(), builder, List.of(builder.newScan().plan()));
    }

    /** "rows" and their "kinds": a stream from snapshot "start" on, left after snapshot "end". */
    private Object stream(JsonNode request) throws Exception {
        Map<String, String> from = new LinkedHashMap<>();
        from.put("scan.mode", "from-snapshot");
        from.put("scan.snapshot-id", request.get("start").asText());
        Table table = catalog(request).getTable(Identifier.fromString(request.get("table").textValue())).copy(from);
        ReadBuilder builder = table.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        List<TableScan.Plan> plans = new ArrayList<>();
        while (scan.checkpoint() == null || scan.checkpoint() <= request.get("end").longValue()) {
            plans.add(scan.plan());
        }
        return rows(table.rowType(), builder, plans);
    }

    private Object rows(RowType type, ReadBuilder builder, List<TableScan.Plan> plans) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        List<String> kinds = new ArrayList<>();
        for (TableScan.Plan plan : plans) {
            try (RecordReader<InternalRow> reader =
                    builder.newRead().executeFilter().withIOManager(ioManager).createReader(plan)) {
                reader.forEachRemaining(
                        row -> {
                            rows.add(Rows.json(row, type));
                            kinds.add(row.getRowKind().shortString());
                        });
            }
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("rows", rows);
        result.put("kinds", kinds);
        return result;
    }

    private static Predicate predicate(PredicateBuilder predicates, RowType type, JsonNode term) {
        int index = predicates.indexOf(term.get(1).textValue());
        List<Object> literals = new ArrayList<>();
        term.get(2).forEach(literal -> literals.add(Rows.value(literal, type.getTypeAt(index))));
        switch (term.get(0).textValue()) {
            case "equal":
                return predicates.equal(index, literals.get(0));
            case "not_equal":
                return predicates.notEqual(index, literals.get(0));
            case "less_than":
                return predicates.lessThan(index, literals.get(0));
            case "greater_or_equal":
                return predicates.greaterOrEqual(index, literals.get(0));
            case "is_null":
                return predicates.isNull(index);
            case "is_not_null":
                return predicates.isNotNull(index);
            case "in":
                return predicates.in(index, literals);
            default:
                throw new IllegalArgumentException("no predicate " + term);
        }
    }

    // what a table is made of

    /** The live files of the latest snapshot, or of "snapshot", as the manifests describe them. */
    private static Object files(JsonNode request, FileStoreTable table) {
        List<Map<String, Object>> files = new ArrayList<>();
        var scan = table.store().newScan();
        if (present(request.get("snapshot"))) {
            scan = scan.withSnapshot(request.get("snapshot").longValue());
        }
        for (ManifestEntry entry : scan.plan().files()) {
            DataFileMeta file = entry.file();
            Map<String, Object> shown = new LinkedHashMap<>();
            shown.put("partition", hex(entry.partition()));
            shown.put("bucket", entry.bucket());
            shown.put("total_buckets", entry.totalBuckets());
            shown.put("name", file.fileName());
            shown.put("level", file.level());
            shown.put("bytes", file.fileSize());
            shown.put("rows", file.rowCount());
            shown.put("deletes", file.deleteRowCount().orElse(null));
            shown.put("min_sequence", file.minSequenceNumber());
            shown.put("max_sequence", file.maxSequenceNumber());
            shown.put("min_key", hex(file.minKey()));
            shown.put("max_key", hex(file.maxKey()));
            shown.put("key_stats", stats(file.keyStats()));
            shown.put("value_stats", stats(file.valueStats()));
            shown.put("value_stats_columns", file.valueStatsCols());
            shown.put("schema", file.schemaId());
            shown.put("extra_files", file.extraFiles());
            shown.put("source", file.fileSource().map(Enum::name).orElse(null));
            shown.put("write_columns", file.writeCols());
            shown.put("first_row_id", file.firstRowId());
            files.add(shown);
        }
        return files;
    }

    private static List<Object> stats(SimpleStats stats) {
        List<Object> nulls = new ArrayList<>();
        BinaryArray counts = stats.nullCounts();
        for (int i = 0; i < counts.size(); i++) {
            nulls.add(counts.isNullAt(i) ? null : counts.getLong(i));
        }
        return List.of(hex(stats.minValues()), hex(stats.maxValues()), nulls);
    }

    private static String hex(BinaryRow row) {
        return HexFormat.of().formatHex(row.toBytes());
    }

    // tags, branches, snapshots

    private static void createTag(JsonNode request, FileStoreTable table) {
        String tag = request.get("tag").textValue();
        Duration retained =
                present(request.get("retain_millis"))
                        ? Duration.ofMillis(request.get("retain_millis").longValue())
                        : null;
        if (present(request.get("snapshot"))) {
            table.createTag(tag, request.get("snapshot").longValue(), retained);
        } else {
            table.createTag(tag, retained);
        }
    }

    private static void createBranch(JsonNode request, FileStoreTable table) {
        if (present(request.get("tag"))) {
            table.createBranch(request.get("branch").textValue(), request.get("tag").textValue());
        } else {
            table.createBranch(request.get("branch").textValue());
        }
    }

    private static void rollback(JsonNode request, FileStoreTable table) {
        if (present(request.get("tag"))) {
            table.rollbackTo(request.get("tag").textValue());
        } else {
            table.rollbackTo(request.get("snapshot").longValue());
        }
    }

    private static Object expire(JsonNode request, FileStoreTable table) {
        ExpireConfig config =
                ExpireConfig.builder()
                        .snapshotRetainMax(request.get("retain_max").intValue())
                        .snapshotRetainMin(request.get("retain_min").intValue())
                        .snapshotTimeRetain(Duration.ofMillis(request.get("older_than_millis").longValue()))
                        .build();
        return table.newExpireSnapshots().config(config).expire();
    }

    // requests

    private static boolean present(JsonNode json) {
        return json != null && !json.isNull();
    }

    private static String user(JsonNode request) {
        return present(request.get("user")) ? request.get("user").textValue() : "witness";
    }

    private long identifier(JsonNode request) {
        return present(request.get("identifier"))
                ? request.get("identifier").longValue()
                : identifiers.incrementAndGet();
    }

    private static List<String> names(JsonNode json) {
        List<String> names = new ArrayList<>();
        json.forEach(name -> names.add(name.textValue()));
        return names;
    }

    static Map<String, String> texts(JsonNode json) {
        Map<String, String> texts = new LinkedHashMap<>();
        if (present(json)) {
            json.fields().forEachRemaining(entry -> texts.put(entry.getKey(), entry.getValue().asText()));
        }
        return texts;
    }
}
