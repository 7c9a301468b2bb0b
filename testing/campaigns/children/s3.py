"""An S3 server for the campaigns: `s3.py PORT ROOT`. Objects are files below ROOT, which outlive `kill -9`.

Each request for the bucket `slow-N` transfers at most N bytes a second. Signatures are not checked. The server reports its port
(0: any), and ends when its input ends.
"""

import hashlib
import os
import re
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape, unescape

CHUNK = 16 << 10
# Replaces the slash of a key in a file's name.
SLASH = "|"


def tagged(name: str, **values: object) -> str:
    inner = "".join(f"<{key}>{escape(str(value))}</{key}>" for key, value in values.items())
    return f"<{name}>{inner}</{name}>"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path

    def log_message(self, *_: object) -> None:
        pass

    def parse(self) -> tuple[Path, str, dict[str, str]]:
        """Returns the bucket's directory, the key, and the query."""
        url = urllib.parse.urlsplit(self.path)
        bucket, _, key = url.path.lstrip("/").partition("/")
        directory = self.root / bucket
        directory.mkdir(parents=True, exist_ok=True)
        rate = re.fullmatch(r"slow-(\d+)", bucket)
        self.rate = int(rate[1]) if rate else None
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        return directory, urllib.parse.unquote(key), query

    def pause(self, transferred: int) -> None:
        if self.rate is not None:
            time.sleep(transferred / self.rate)

    def body(self) -> bytes:
        left, parts = int(self.headers.get("Content-Length", 0)), []
        while left > 0:
            part = self.rfile.read(min(left, CHUNK))
            if not part:
                raise ConnectionError("the request is cut off")
            parts.append(part)
            left -= len(part)
            self.pause(len(part))
        return b"".join(parts)

    def answer(self, status: int, body: bytes | str = b"", **headers: object) -> None:
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        headers.setdefault("Content_Length", len(body))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            for at in range(0, len(body), CHUNK):
                self.wfile.write(body[at : at + CHUNK])
                self.pause(min(CHUNK, len(body) - at))

    def error(self, status: int, code: str) -> None:
        self.answer(status, tagged("Error", Code=code, Message=code))

    def put(self, file: Path, body: bytes, *, is_new: bool) -> None:
        """Writes an object in one step. Answers with status 412 if `is_new` is true and the object exists."""
        part = file.with_name(f".{os.getpid()}-{time.monotonic_ns()}-{id(self)}")
        part.write_bytes(body)
        try:
            if is_new:
                os.link(part, file)
                part.unlink()
            else:
                os.replace(part, file)
        except FileExistsError:
            part.unlink()
            self.error(412, "PreconditionFailed")
        else:
            self.answer(200, ETag=etag(body))

    def do_PUT(self) -> None:  # noqa: N802
        bucket, key, query = self.parse()
        body = self.body()
        if not key:
            self.answer(200)
        elif "uploadId" in query:
            self.put(bucket / f".upload-{query['uploadId']}-{query['partNumber']}", body, is_new=False)
        else:
            is_new = self.headers.get("If-None-Match") == "*"
            self.put(bucket / key.replace("/", SLASH), body, is_new=is_new)

    def do_POST(self) -> None:  # noqa: N802
        bucket, key, query = self.parse()
        body = self.body().decode()
        if "delete" in query:
            keys = [unescape(name) for name in re.findall(r"<Key>(.*?)</Key>", body)]
            for name in keys:
                (bucket / name.replace("/", SLASH)).unlink(missing_ok=True)
            deleted = "".join(tagged("Deleted", Key=name) for name in keys)
            self.answer(200, f"<DeleteResult>{deleted}</DeleteResult>")
        elif "uploads" in query:
            number = f"{os.getpid()}{time.monotonic_ns()}"
            self.answer(200, tagged("InitiateMultipartUploadResult", Key=key, UploadId=number))
        else:
            upload = query["uploadId"]
            numbers = re.findall(r"<PartNumber>(\d+)</PartNumber>", body)
            parts = [bucket / f".upload-{upload}-{number}" for number in numbers]
            whole = b"".join(part.read_bytes() for part in parts)
            file = bucket / key.replace("/", SLASH)
            part = file.with_name(f".whole-{upload}")
            part.write_bytes(whole)
            os.replace(part, file)
            self.answer(200, tagged("CompleteMultipartUploadResult", Key=key, ETag=etag(whole)))

    def do_DELETE(self) -> None:  # noqa: N802
        bucket, key, query = self.parse()
        if "uploadId" in query:
            for part in bucket.glob(f".upload-{query['uploadId']}-*"):
                part.unlink(missing_ok=True)
        else:
            (bucket / key.replace("/", SLASH)).unlink(missing_ok=True)
        self.answer(204)

    def do_HEAD(self) -> None:  # noqa: N802
        self.do_GET()

    def do_GET(self) -> None:  # noqa: N802
        bucket, key, query = self.parse()
        if not key:
            return self.list(bucket, query)
        try:
            body = (bucket / key.replace("/", SLASH)).read_bytes()
        except FileNotFoundError:
            return self.error(404, "NoSuchKey")
        headers = {"ETag": etag(body), "Last_Modified": self.date_time_string()}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if self.command == "HEAD":
            return self.answer(200, Content_Length=len(body), **headers)
        if asked is None:
            return self.answer(200, body, **headers)
        first, last = int(asked[1]), min(int(asked[2] or len(body)), len(body) - 1)
        headers["Content_Range"] = f"bytes {first}-{last}/{len(body)}"
        return self.answer(206, body[first : last + 1], **headers)

    def list(self, bucket: Path, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        keys = sorted(name.replace(SLASH, "/") for name in os.listdir(bucket) if not name.startswith("."))
        keys = [key for key in keys if key.startswith(prefix) and key > after]
        is_cut, keys = len(keys) > 1000, keys[:1000]
        found, prefixes = [], {}
        for key in keys:
            head, middle, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if middle:
                prefixes[prefix + head + middle] = None
                continue
            try:
                status = (bucket / key.replace("/", SLASH)).stat()
            except FileNotFoundError:
                continue
            date = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(status.st_mtime))
            found.append(tagged("Contents", Key=key, LastModified=date, ETag='"list"', Size=status.st_size))
        found += [tagged("CommonPrefixes", Prefix=name) for name in prefixes]
        if is_cut:
            found.append(f"<NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>")
        found.append(f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>")
        self.answer(200, f"<ListBucketResult>{''.join(found)}</ListBucketResult>")


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Clients that are killed break off requests."""


def end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    port, Handler.root = int(sys.argv[1]), Path(sys.argv[2])
    server = Server(("127.0.0.1", port), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
