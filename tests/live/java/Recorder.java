import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Runs an engine of Debezium for each file NAME.properties of a folder, until the standard input ends. Each change event
 * becomes a line of NAME.jsonl there: its topic, key and value as the converter wrote them.
 */
public final class Recorder {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        List<DebeziumEngine<?>> engines = new ArrayList<>();
        ExecutorService threads = Executors.newCachedThreadPool();
        try (var files = Files.newDirectoryStream(folder, "*.properties")) {
            for (Path file : files) {
                DebeziumEngine<?> engine = engine(file);
                engines.add(engine);
                threads.execute(engine);
            }
        }
        while (System.in.read() >= 0) {
        }
        for (DebeziumEngine<?> engine : engines) {
            try {
                engine.close();
            } catch (Exception error) {
                System.err.println("an engine could not be closed: " + error);
            }
        }
        System.exit(0);
    }

    private static DebeziumEngine<?> engine(Path file) throws Exception {
        Properties properties = new Properties();
        try (var reader = Files.newBufferedReader(file)) {
            properties.load(reader);
        }
        String name = file.getFileName().toString().replace(".properties", "");
        Writer out = Files.newBufferedWriter(
            file.resolveSibling(name + ".jsonl"), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        return DebeziumEngine.create(Json.class)
            .using(properties)
            .using((success, message, error) -> System.err.println(name + " ended: " + message + " " + error))
            .notifying((events, committer) -> {
                write(out, events);
                for (ChangeEvent<String, String> event : events) {
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
            })
            .build();
    }

    private static void write(Writer out, List<ChangeEvent<String, String>> events) {
        try {
            for (ChangeEvent<String, String> event : events) {
                Map<String, String> line = new LinkedHashMap<>();
                line.put("topic", event.destination());
                line.put("key", event.key());
                line.put("value", event.value());
                out.write(JSON.writeValueAsString(line) + "\n");
            }
            out.flush();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
