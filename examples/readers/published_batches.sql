-- The rows of published batches in Flink SQL, in batch mode. Change the brokers, the pipeline in two names of topics, the columns of
-- the output, and the sink; then run it with Flink's SQL client and its Kafka connector: sql-client.sh -f published_batches.sql
--
-- A batch is in the result only if all its records are there. `incomplete` has the other batches: an open transaction hides some
-- of their records, or retention has deleted some. `incomplete` has to be empty.

SET 'execution.runtime-mode' = 'batch';

-- All announcements until now. `place` is the announcement's offset.
CREATE TEMPORARY TABLE announcements (
    `state` STRING,
    `batch` STRING,
    `interval` ROW<`start` STRING, `end` STRING>,
    `revision` BIGINT,
    `adds_to` BIGINT,
    `header` STRING,
    `ranges` MAP<STRING, ARRAY<BIGINT>>,
    `rows` BIGINT,
    `place` BIGINT METADATA FROM 'offset' VIRTUAL
) WITH (
    'connector' = 'kafka',
    'properties.bootstrap.servers' = 'kafka:9092',
    'topic' = 'fencepost.orders.published',
    'properties.isolation.level' = 'read_committed',
    'scan.startup.mode' = 'earliest-offset',
    'scan.bounded.mode' = 'latest-offset',
    'format' = 'json'
);

-- The output's committed records, with header, partition and offset.
CREATE TEMPORARY TABLE output (
    `n` INT,
    `doubled` INT,
    `name` STRING,
    `headers` MAP<STRING, BYTES> METADATA VIRTUAL,
    `in_partition` INT METADATA FROM 'partition' VIRTUAL,
    `place` BIGINT METADATA FROM 'offset' VIRTUAL
) WITH (
    'connector' = 'kafka',
    'properties.bootstrap.servers' = 'kafka:9092',
    'topic' = 'orders',
    'properties.isolation.level' = 'read_committed',
    'scan.startup.mode' = 'earliest-offset',
    'scan.bounded.mode' = 'latest-offset',
    'value.format' = 'json',
    'value.json.timestamp-format.standard' = 'ISO-8601'
);

-- The batches that count: for each interval, the last publication that is not an addition, and the additions after it.
CREATE TEMPORARY VIEW in_force AS
SELECT told.*
FROM announcements AS told
JOIN (
    SELECT `interval`.`start` AS `start`, MAX(`place`) AS `since`
    FROM announcements
    WHERE `state` = 'withdrawn' OR (`state` = 'published' AND `adds_to` IS NULL)
    GROUP BY `interval`.`start`
) AS newest ON told.`interval`.`start` = newest.`start` AND told.`place` >= newest.`since`
WHERE told.`state` = 'published';

-- Their records: the records in the announced ranges whose header names the batch.
CREATE TEMPORARY VIEW published AS
SELECT
    f.`batch`, f.`interval`.`start` AS `interval`, f.`revision`, f.`rows`, o.`n`, o.`doubled`, o.`name`,
    COUNT(*) OVER (PARTITION BY f.`batch`) AS `found`
FROM output AS o
JOIN in_force AS f ON DECODE(o.`headers`[f.`header`], 'UTF-8') = f.`batch`
WHERE o.`place` >= f.`ranges`[CAST(o.`in_partition` AS STRING)][1]
  AND o.`place` < f.`ranges`[CAST(o.`in_partition` AS STRING)][2];

CREATE TEMPORARY VIEW incomplete AS
SELECT f.`batch`, f.`rows`, COUNT(p.`batch`) AS `found`
FROM in_force AS f
LEFT JOIN published AS p ON p.`batch` = f.`batch`
GROUP BY f.`batch`, f.`rows`
HAVING COUNT(p.`batch`) <> f.`rows`;

CREATE TEMPORARY TABLE incomplete_batches (`batch` STRING, `rows` BIGINT, `found` BIGINT)
WITH ('connector' = 'filesystem', 'path' = '/var/lib/reports/incomplete', 'format' = 'json');

CREATE TEMPORARY TABLE `result` (`batch` STRING, `interval` STRING, `revision` BIGINT, `n` INT, `doubled` INT, `name` STRING)
WITH ('connector' = 'filesystem', 'path' = '/var/lib/reports/result', 'format' = 'json');

INSERT OVERWRITE incomplete_batches SELECT * FROM incomplete;

INSERT OVERWRITE `result`
SELECT `batch`, `interval`, `revision`, `n`, `doubled`, `name` FROM published WHERE `found` = `rows`;
