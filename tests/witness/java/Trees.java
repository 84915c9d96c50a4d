import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.compact.CompactUnit;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.manifest.FileSource;
import org.apache.paimon.mergetree.LevelSortedRun;
import org.apache.paimon.mergetree.SortedRun;
import org.apache.paimon.mergetree.compact.CompactStrategy;
import org.apache.paimon.mergetree.compact.EarlyFullCompaction;
import org.apache.paimon.mergetree.compact.ForceUpLevel0Compaction;
import org.apache.paimon.mergetree.compact.UniversalCompaction;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.stats.SimpleStats;

/** What Paimon would compact of trees that are only sizes. */
final class Trees {

    private Trees() {}

    /**
     * The picks of many trees.
     *
     * @param trees of each: "runs" ([level, bytes, files], newest first), "options", "full", "levels"
     * @return of each: [runs picked, output level], or null for no compaction
     */
    static List<Object> picks(JsonNode trees) {
        List<Object> picks = new ArrayList<>();
        trees.forEach(tree -> picks.add(pick(tree)));
        return picks;
    }

    private static List<Integer> pick(JsonNode tree) {
        CoreOptions options = new CoreOptions(Witness.texts(tree.get("options")));
        List<LevelSortedRun> runs = new ArrayList<>();
        Map<String, Integer> runOfFile = new HashMap<>();
        for (JsonNode run : tree.get("runs")) {
            List<DataFileMeta> files = new ArrayList<>();
            int fileCount = run.get(2).intValue();
            for (int i = 0; i < fileCount; i++) {
                // the first file has what is left over when the bytes are shared out
                long share = run.get(1).longValue() / fileCount;
                long bytes = i == 0 ? run.get(1).longValue() - share * (fileCount - 1) : share;
                DataFileMeta file = file("file-" + runs.size() + "-" + i, bytes, run.get(0).intValue());
                files.add(file);
                runOfFile.put(file.fileName(), runs.size());
            }
            runs.add(new LevelSortedRun(run.get(0).intValue(), SortedRun.fromSorted(files)));
        }
        // the number of levels as `Levels` has it: as configured, or more where files lie higher
        int levels = Math.max(options.numLevels(), runs.stream().mapToInt(LevelSortedRun::level).max().orElse(-1) + 1);
        Optional<CompactUnit> unit;
        if (tree.get("full").booleanValue()) {
            unit = CompactStrategy.pickFullCompaction(levels, runs, null, null, false);
        } else {
            UniversalCompaction universal =
                    new UniversalCompaction(
                            options.maxSizeAmplificationPercent(),
                            options.sortedRunSizeRatio(),
                            options.numSortedRunCompactionTrigger(),
                            EarlyFullCompaction.create(options),
                            null);
            CompactStrategy strategy =
                    tree.get("push").booleanValue() ? new ForceUpLevel0Compaction(universal, null) : universal;
            unit = strategy.pick(levels, runs);
        }
        // as MergeTreeCompactManager.triggerCompaction filters what was picked
        return unit.filter(u -> !u.files().isEmpty())
                .filter(u -> u.files().size() > 1 || u.files().get(0).level() != u.outputLevel())
                .map(
                        u -> {
                            int last = u.files().stream().mapToInt(f -> runOfFile.get(f.fileName())).max().getAsInt();
                            return Arrays.asList(last + 1, u.outputLevel());
                        })
                .orElse(null);
    }

    private static DataFileMeta file(String name, long bytes, int level) {
        return DataFileMeta.create(
                name,
                bytes,
                1L,
                DataFileMeta.EMPTY_MIN_KEY,
                DataFileMeta.EMPTY_MAX_KEY,
                SimpleStats.EMPTY_STATS,
                SimpleStats.EMPTY_STATS,
                0L,
                0L,
                0L,
                level,
                Collections.emptyList(),
                0L,
                null,
                FileSource.APPEND,
                null,
                null,
                null,
                null);
    }
}
