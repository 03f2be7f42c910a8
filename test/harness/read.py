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


def crc32c(data):
    crc = 0xffffffff
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def batches(path, torn):
    """The entries of one file of _duplicates; where torn, up to the end of what can be read."""
    import fastavro
    with open(path, "rb") as f:
        blocks = fastavro.block_reader(f)
        meta, sync = blocks._header["meta"], blocks._header["sync"]
        seal = b"".join(k.encode() + b"\0" + v + b"\0" for k, v in sorted(meta.items()) if k != "twgd.crc32c") + sync
        if meta["twgd.crc32c"] != b"%08x" % crc32c(seal) or not os.path.basename(path).startswith("%020d" % int(meta["twgd.first"])):
            raise ValueError(path + ": the header is not as it was written")
        fields = blocks.writer_schema["fields"]
        assert fields[-1]["name"] == "crc32c", fields
        sealed = fastavro.parse_schema({"type": "record", "name": "Sealed", "fields": fields[:-1]})
        while True:
            try:
                block = next(blocks)
            except StopIteration:
                return
            except Exception:
                if torn:
                    return
                raise
            for _ in range(block.num_records):
                begin = block.bytes_.tell()
                entry = fastavro.schemaless_reader(block.bytes_, sealed, None)
                end = block.bytes_.tell()
                if fastavro.schemaless_reader(block.bytes_, "long", None) != crc32c(block.bytes_.getvalue()[begin:end]):
                    raise ValueError(path + ": an entry does not have its checksum")
                yield entry


def dropped(torn=False):
    import uuid
    root = os.path.join(glob.escape(folder), "_duplicates")
    for path in sorted(glob.glob(os.path.join(root, "*", "*", "*.avro"))):
        where = "/".join(path.split(os.sep)[-3:-1])
        for entry in batches(path, torn):
            for d in entry["dropped"]:
                if not entry["from"] <= d["offset"] < entry["to"]:
                    raise ValueError(path + ": an entry names an offset outside of it")
                yield {"Path": where, "Offset": d["offset"], "ID": str(uuid.UUID(bytes=d["record_id"])), "Stands": d["stands"].hex()}


def dropped_torn():
    return dropped(True)


json.dump(list({"raw": raw, "lake": lake, "lake_ids": lake_ids, "dropped": dropped, "dropped_torn": dropped_torn}[what]()), sys.stdout)
