// For LD_PRELOAD: reads and writes move half of what they are asked to, and every fifth one is interrupted
// first. Both are what a kernel may do at any time, and hardly ever does.
#undef _FORTIFY_SOURCE  // Ubuntu's GCC defines it, and the C library then has functions of these names inline
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace {

bool interrupted() {
  static int calls = 0;
  if (++calls % 5 != 0) return false;
  errno = EINTR;
  return true;
}

size_t half(size_t size) { return size - size / 2; }

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  return interrupted() ? -1 : ::syscall(SYS_write, fd, bytes, half(size));
}
ssize_t read(int fd, void* bytes, size_t size) {
  return interrupted() ? -1 : ::syscall(SYS_read, fd, bytes, half(size));
}
ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  return interrupted() ? -1 : ::syscall(SYS_pread64, fd, bytes, half(size), offset);
}
ssize_t pread64(int fd, void* bytes, size_t size, off_t offset) {
  return interrupted() ? -1 : ::syscall(SYS_pread64, fd, bytes, half(size), offset);
}
}
