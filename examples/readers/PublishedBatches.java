import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Copies each published batch of a pipeline into a file of its own, and removes the files of batches that no longer count.
 *
 * <p>It needs the topic of announcements and the output. You may stop and start it at any time:
 *
 * <pre>java -cp "jars/*" PublishedBatches.java client.properties PIPELINE FOLDER</pre>
 *
 * <p>The folder has a file for each announcement that was read, named by its offset: first the announcement, then the batch's
 * values, a line each. A file gets its name when it is complete, so result and position change together. It reads JSON objects ({@code
 * output.format: json}) of an output topic, and leaves them as they are.
 */
public class PublishedBatches {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration PATIENCE = Duration.ofSeconds(60); // without a record, although some are missing

    /** The reader cannot continue. The text says why, and what to do. */
    private static class Unreadable extends Exception {
        Unreadable(String message) {
            super(message);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String wrong = null;
        try {
            follow(arguments);
        } catch (Unreadable error) {
            wrong = error.getMessage();
        } catch (NoSuchFileException | FileAlreadyExistsException error) {
            wrong = error.getMessage() + ": no such file, or no folder";
        } catch (KafkaException error) {
            String why = error.getCause() == null ? error.getMessage() : error.getMessage() + ": " + error.getCause().getMessage();
            wrong = arguments[0] + ": " + why + ". Check the settings there, the pipeline's name, and the reader's rights.";
        }
        if (wrong != null) {
            System.err.println(wrong);
            System.exit(1);
        }
    }

    private static void follow(String[] arguments) throws Exception {
        if (arguments.length != 3) {
            throw new Unreadable("usage: java -cp \"jars/*\" PublishedBatches.java client.properties PIPELINE FOLDER");
        }
        Properties settings = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(file);
        }
        settings.putIfAbsent("group.id", "fencepost-reader"); // the group that the reader has a right to
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "none"); // a position that is gone is an error: nothing is passed over
        settings.put("enable.auto.commit", "false"); // the position is in the folder
        settings.put("allow.auto.create.topics", "false");
        Path folder = Files.createDirectories(Path.of(arguments[2]));
        try (KafkaConsumer<byte[], byte[]> announcements = consumer(settings);
                KafkaConsumer<byte[], byte[]> records = consumer(settings)) {
            TopicPartition topic = new TopicPartition("fencepost." + arguments[1] + ".published", 0);
            List<PartitionInfo> known = announcements.partitionsFor(topic.topic());
            if (known == null || known.isEmpty()) {
                throw new Unreadable(
                        "topic " + topic.topic() + " is not there. Check the pipeline's name and the cluster. The topic is there once the"
                                + " pipeline has planned.");
            }
            announcements.assign(List.of(topic));
            TreeMap<Long, JsonNode> read = read(folder);
            long last = read.isEmpty() ? -1 : read.lastKey();
            long end = announcements.endOffsets(List.of(topic)).get(topic); // of the committed announcements
            boolean isKnown = last < 0; // the last announcement is read again: a topic that was created again differs there
            announcements.seek(topic, Math.max(last, 0));
            while (announcements.position(topic) < end) {
                for (ConsumerRecord<byte[], byte[]> record : announcements.poll(Duration.ofSeconds(1))) {
                    JsonNode told = JSON.readTree(record.value());
                    if (!isKnown && record.offset() == last && told.equals(read.get(last))) {
                        isKnown = true;
                        continue;
                    }
                    if (!isKnown) {
                        break;
                    }
                    if (told.get("version").asInt() != 1) {
                        throw new Unreadable("an announcement of another version: " + told.get("version"));
                    }
                    List<String> lines = new ArrayList<>(List.of(told.toString()));
                    if (told.get("state").asText().equals("published") && told.get("rows").asLong() > 0) {
                        lines.addAll(values(records, told));
                    }
                    keep(folder, record.offset(), lines);
                    read.put(record.offset(), told);
                    System.out.println(told.get("state").asText() + " " + told.get("batch").asText());
                }
            }
            if (!isKnown) {
                throw new Unreadable(topic + " was created again: empty " + folder + ", and read it from its start");
            }
            remove(folder, read);
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Properties settings) {
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** What was read before, by offset. */
    private static TreeMap<Long, JsonNode> read(Path folder) throws Exception {
        TreeMap<Long, JsonNode> found = new TreeMap<>();
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : files.filter(one -> one.toString().endsWith(".jsonl")).toList()) {
                long offset = Long.parseLong(file.getFileName().toString().replace(".jsonl", ""));
                try (Stream<String> lines = Files.lines(file)) {
                    found.put(offset, JSON.readTree(lines.findFirst().orElseThrow()));
                }
            }
        }
        return found;
    }

    /**
     * The batch's values: of the records in its ranges those whose header names it. Other batches may have records there.
     *
     * <p>Each range is read to its end, or until all of the batch was seen. Then the number is compared.
     */
    private static List<String> values(KafkaConsumer<byte[], byte[]> records, JsonNode told) throws Unreadable {
        String batch = told.get("batch").asText(), format = told.get("format").asText(null);
        String header = told.get("header").asText(null);
        if (!"topic".equals(told.get("kind").asText())) {
            throw new Unreadable(
                    batch + ": its rows are not in a topic, but in " + told.get("output").asText() + ". Read them there.");
        }
        if (!"json".equals(format)) {
            throw new Unreadable(
                    batch + ": its values are of format " + format + ", and this reader takes json. Decode them in values().");
        }
        if (header == null) {
            throw new Unreadable(batch + ": its records do not name it, so nobody can tell them apart");
        }
        int rows = told.get("rows").asInt();
        Map<TopicPartition, Long> ends = new HashMap<>();
        List<String> values = new ArrayList<>();
        for (Map.Entry<String, JsonNode> range : told.get("ranges").properties()) {
            TopicPartition place = new TopicPartition(told.get("output").asText(), Integer.parseInt(range.getKey()));
            ends.put(place, range.getValue().get(1).asLong());
        }
        records.assign(ends.keySet());
        ends.keySet().forEach(one -> records.seek(one, told.get("ranges").get("" + one.partition()).get(0).asLong()));
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (values.size() < rows && ends.keySet().stream().anyMatch(one -> records.position(one) < ends.get(one))) {
            if (System.nanoTime() > deadline) {
                break; // an open transaction hides the rest
            }
            for (ConsumerRecord<byte[], byte[]> record : records.poll(Duration.ofSeconds(1))) {
                deadline = System.nanoTime() + PATIENCE.toNanos();
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                Header named = record.headers().lastHeader(header);
                boolean own = named != null && Arrays.equals(named.value(), batch.getBytes(StandardCharsets.UTF_8));
                if (own && record.offset() < ends.get(place)) {
                    values.add(record.value() == null ? "null" : new String(record.value(), StandardCharsets.UTF_8));
                }
            }
        }
        if (values.size() != rows) {
            throw new Unreadable(
                    batch + ": " + values.size() + " of its " + rows + " records are there. If an open transaction hides the others, a"
                            + " later run reads them; else they are gone.");
        }
        return values;
    }

    private static void keep(Path folder, long offset, List<String> lines) throws Exception {
        Path draft = Files.write(folder.resolve("draft"), lines);
        Files.move(draft, folder.resolve(offset + ".jsonl"), StandardCopyOption.ATOMIC_MOVE);
    }

    /** A publication replaces all batches of its interval, unless it is an addition. A withdrawal removes them. */
    private static void remove(Path folder, Map<Long, JsonNode> read) throws Exception {
        Map<JsonNode, List<Long>> counts = new HashMap<>();
        for (Map.Entry<Long, JsonNode> one : read.entrySet()) {
            JsonNode told = one.getValue();
            List<Long> own = counts.computeIfAbsent(told.get("interval"), interval -> new ArrayList<>());
            boolean adds = !told.get("adds_to").isNull();
            if (!told.get("state").asText().equals("skipped") && !adds) {
                for (long older : own) {
                    keep(folder, older, List.of(read.get(older).toString())); // the announcement is part of the position
                }
                own.clear();
            }
            if (told.get("state").asText().equals("published")) {
                own.add(one.getKey());
            }
        }
    }
}
