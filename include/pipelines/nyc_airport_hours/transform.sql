-- One row for each airport and hour with flights. Each side has an airport and hour once before the join, so the join doubles
-- nothing, and a left join keeps the flights of an hour without weather. Counts and decimals alone: a retry gives the same rows.
WITH flown AS (
  -- A day that `nyc_flights` wrote again lies in the topic twice: the newer record of a flight counts.
  SELECT origin, newest.*
  FROM (
    SELECT origin, max_by(struct(time_hour, dep_delay), struct(_offset, _partition)) AS newest
    FROM flights
    GROUP BY year, month, day, carrier, flight, origin
  )
),
delays AS (
  SELECT
    origin,
    time_hour AS hour,
    CAST(count(*) AS int) AS flights,
    CAST(count(dep_delay) AS int) AS departed,                 -- the others were cancelled
    CAST(count_if(dep_delay >= 15) AS int) AS late,            -- the airlines' own line
    coalesce(sum(dep_delay), 0) AS delay_minutes               -- of all that departed
  FROM flown
  GROUP BY origin, time_hour
),
observed AS (
  -- Of several observations in an hour the last one counts, and of one that was published again the newer record.
  SELECT
    origin,
    date_trunc('HOUR', observed_at) AS hour,
    max_by(struct(sky, precip_mm, wind_kmh), struct(observed_at, _offset)) AS last
  FROM weather
  GROUP BY origin, date_trunc('HOUR', observed_at)
)
SELECT
  origin,
  hour,
  flights,
  departed,
  late,
  delay_minutes,
  last.sky,                                                    -- null, like the next two: no observation of that hour
  last.precip_mm,
  CAST(last.wind_kmh AS decimal(4, 1)) AS wind_kmh
FROM delays
LEFT JOIN observed USING (origin, hour)
