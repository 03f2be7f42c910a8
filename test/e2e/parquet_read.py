import glob, json, sys, uuid

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq


def hexed(v):
    return None if v is None else bytes(v).hex()


def header(h):
    return [h["key"].encode().hex(), hexed(h["value"])]


def row(id, topic, partition, offset, ts, kind, epoch, pid, pepoch, headers, key, value):
    return {"id": str(id), "topic": topic, "partition": partition, "offset": offset, "timestamp": ts, "timestamp_type": kind,
            "leader_epoch": epoch, "producer_id": pid, "producer_epoch": pepoch, "headers": [header(h) for h in headers],
            "key": hexed(key), "value": hexed(value)}


def by_arrow(files):
    rows = []
    for f in files:
        # One file, read as such: below a folder pyarrow would look for partitions in the names.
        table = pq.ParquetFile(f).read()
        types = {field.name: str(field.type) for field in table.schema}
        columns = []
        for name in table.column_names:
            column = table.column(name)
            if name == "__kafka_timestamp":
                column = column.cast(pa.int64())  # Python has no year 55840
            columns.append(column.to_pylist())
        rows += [row(*r) for r in zip(*columns)]
    return rows, types


def by_duck(files):
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    types = {r[0]: r[1] for r in db.execute("describe select * from read_parquet(?)", [files]).fetchall()}
    rows = db.execute("select * replace (epoch_ms(__kafka_timestamp) as __kafka_timestamp) from read_parquet(?) order by __kafka_offset", [files]).fetchall()
    nulls = db.execute("select count(*) from read_parquet(?) where __kafka_value is null", [files]).fetchone()[0]
    stats = db.execute("select sum(stats_null_count)::bigint, count(distinct (file_name, row_group_id)) from parquet_metadata(?) where path_in_schema = '__kafka_value'", [files]).fetchone()
    return [row(*r) for r in rows], types, nulls, stats


def read(folder):
    files = sorted(glob.glob(folder + "/orders/*/*/*.parquet"))
    arrow, arrow_types = by_arrow(files)
    duck, duck_types, nulls, stats = by_duck(files)
    return {"arrow": arrow, "duck": duck, "arrow_types": arrow_types, "duck_types": duck_types,
            "null_values": nulls, "null_stats": stats[0], "row_groups": stats[1]}


def notices(reader):
    try:
        reader()
    except Exception:
        return 1
    return 0


def flip(path, torn):
    whole = open(path, "rb").read()
    meta = pq.ParquetFile(path).metadata.row_group(0)
    column = next(meta.column(i) for i in range(meta.num_columns) if meta.column(i).path_in_schema == "__kafka_value")
    # The header of the page lies in front of the frame; twenty places of the frame's content.
    start, size = column.data_page_offset, column.total_compressed_size
    frame = whole.index(bytes.fromhex("28b52ffd"), start)
    out = {"tried": 0, "arrow": 0, "duck": 0}
    for i in range(25):
        at = frame + 16 + (start + size - frame - 16) * i // 25
        bad = bytearray(whole)
        bad[at] ^= 0x04
        with open(torn, "wb") as f:
            f.write(bad)
        out["tried"] += 1
        out["arrow"] += notices(lambda: pq.ParquetFile(torn).read(columns=["__kafka_value"]))
        out["duck"] += notices(lambda: duckdb.connect().execute("select __kafka_value from read_parquet(?)", [torn]).fetchall())
    return out


print(json.dumps({"read": read, "flip": flip}[sys.argv[1]](*sys.argv[2:])))
