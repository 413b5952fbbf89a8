# What the other kernels share with this one.
ctypedef const unsigned char *Bytes

cdef (Py_ssize_t, long long) read_varint(Bytes data, Py_ssize_t at, Py_ssize_t end, int bits) noexcept nogil
cdef Py_ssize_t varint_bytes(long long value) noexcept nogil
cdef Py_ssize_t write_varint(unsigned char *out, Py_ssize_t at, long long value) noexcept nogil
# position after the record or a status, timestamp delta, offset delta, where its key length stands, key start, key
# length, value start, value length, headers start, header count
ctypedef (
    Py_ssize_t, long long, int, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t
) RecordFields

cdef RecordFields read_record(Bytes data, Py_ssize_t at, Py_ssize_t end) noexcept nogil
cdef Py_ssize_t validate_records(
    Bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t count, long long base_timestamp, long long oldest_ms,
    long long newest_ms, long long *summary
) noexcept nogil
