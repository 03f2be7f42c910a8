# Prints what a stream's folder holds, read by tools that share no code with the program.
import glob, json, os, sys

what, folder = sys.argv[1], sys.argv[2]


def text(b):
    return None if b is None else bytes(b).hex()


def row(partition, r):
    return {"id": str(r.get("_twg_record_id") or ""), "partition": partition, "offset": r["__kafka_offset"], "timestamp": r["__kafka_timestamp"],
            "timestamp_type": r["__kafka_timestamp_type"], "key": text(r["__kafka_key"]), "value": text(r["__kafka_value"]),
            "headers": [{"Key": h["key"], "Value": text(h["value"])} for h in r["__kafka_headers"]]}


def files(ending):
    return sorted(glob.glob(os.path.join(glob.escape(folder), "*", "*", "*." + ending)))


def raw():
    import fastavro
    for path in files("avro"):
        partition = int(os.path.basename(os.path.dirname(path)).split(".")[0])
        with open(path, "rb") as f:
            for e in fastavro.reader(f):
                if e["kind"] == "record":
                    yield row(partition, e)


def query(sql):
    import duckdb
    found = files("parquet")
    if not found:
        return []
    c = duckdb.connect()
    c.execute(sql, [found])
    names = [d[0] for d in c.description]
    return [dict(zip(names, r)) for r in c.fetchall()]


def lake():
    for r in query("select * replace (epoch_ms(__kafka_timestamp) as __kafka_timestamp) from read_parquet(?)"):
        yield row(r["__kafka_partition"], r)


def lake_ids():
    for r in query("select _twg_record_id::varchar as id from read_parquet(?)"):
        yield r["id"]


json.dump(list({"raw": raw, "lake": lake, "lake_ids": lake_ids}[what]()), sys.stdout)
