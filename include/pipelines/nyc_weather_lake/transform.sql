-- One row for each airport and hour. A day that `nyc_weather` wrote again lies in the topic twice. Where one batch reads both, the
-- newer record of an observation counts: an airport keeps its partition, and so its order.
SELECT origin, observed_at, newest.*
FROM (
  SELECT
    origin,
    observed_at,
    max_by(
      struct(
        temp_c, dewp_c, humidity, wind_dir, wind_kmh, gust_kmh, precip_mm, pressure_hpa, visibility_km, sky
      ),
      _offset
    ) AS newest
  FROM source
  GROUP BY origin, observed_at
)
