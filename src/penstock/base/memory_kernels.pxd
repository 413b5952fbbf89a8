# What the compiled kernel asks of Python and of the C library; where that is not glibc there is nothing to ask.
cdef extern from *:
    """
    #include <Python.h>
    static PyObject *penstock_unfilled(Py_ssize_t length) { return PyByteArray_FromStringAndSize(NULL, length); }
    """
    bytearray penstock_unfilled(Py_ssize_t length)

cdef extern from * nogil:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static int penstock_keep_freed(int mapped_from, int kept_bytes) {
        return mallopt(M_MMAP_THRESHOLD, mapped_from) && mallopt(M_TRIM_THRESHOLD, kept_bytes);
    }
    #else
    static int penstock_keep_freed(int mapped_from, int kept_bytes) {
        (void)mapped_from, (void)kept_bytes;
        return 0;
    }
    #endif
    """
    int penstock_keep_freed(int mapped_from, int kept_bytes)
