// Whole reads, atomic replacement, the folder's lock, and text that is safe for a terminal.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "io/file.h"
#include "io/utf8.h"

namespace fs = std::filesystem;
using namespace normscope;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("normscope-files-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
  long entries() const { return std::distance(fs::directory_iterator(path), fs::directory_iterator()); }
};

// The Error's message; empty if there was none.
template <class Action>
std::string message_of(Action&& action, Exit expected = Exit::failure) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.exit == expected);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "";
}

// While it lives no file can grow past `bytes`: writes fail as they would on a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

}  // namespace

TEST_CASE("read_file gives every byte and says why it cannot") {
  const Folder folder;
  std::string bytes("a\0\r\n\xFF", 5);
  for (int i = 0; i < 20000; ++i) bytes += static_cast<char>(i);
  std::ofstream(folder / "x", std::ios::binary) << bytes;
  std::ofstream(folder / "empty");
  CHECK(read_file(folder / "x") == bytes);
  CHECK(read_file(folder / "empty").empty());
  CHECK(read_file("/proc/self/stat").size() > 10);  // a file that claims to have no bytes

  CHECK(message_of([&] { read_file(folder / "none"); }).find("No such file") != std::string::npos);
  CHECK(message_of([&] { read_file(folder.path.string()); }).find("is a folder") != std::string::npos);
  const auto as_config = [&] { read_file(folder / "no\nne", {.where = "config", .exit = Exit::usage}); };
  CHECK(message_of(as_config, Exit::usage).starts_with("[config] "));
  const auto at_most = [&](Index limit) { read_file(folder / "x", {.max_bytes = limit}); };
  CHECK(message_of([&] { at_most(20005); }) == "");
  CHECK(message_of([&] { at_most(20004); }).find("larger than 20004") != std::string::npos);
  CHECK(message_of([&] { read_file("/dev/zero"); }).find("device") != std::string::npos);
}

TEST_CASE("a file is replaced whole or not at all") {
  const Folder folder;
  const std::string path = folder / "x";
  write_atomically(path, "one, ", std::string("two"));
  CHECK(read_file(path) == "one, two");
  write_atomically(path, "three");
  CHECK(read_file(path) == "three");

  {  // given up: an exception before commit
    AtomicFile file(path);
    file.write("half");
    CHECK(read_file(path) == "three");
  }
  CHECK(read_file(path) == "three");
  CHECK(folder.entries() == 1);

  {  // the disk is full
    const SmallDisk disk(1000);
    const std::string error = message_of([&] { write_atomically(path, std::string(5000, 'x')); });
    CHECK(error.find(path) != std::string::npos);
    CHECK(error.find("File too large") != std::string::npos);
  }
  CHECK(read_file(path) == "three");
  CHECK(folder.entries() == 1);

  std::ofstream(AtomicFile::temporary_path(path)) << "left by a killed process";
  write_atomically(path, "four");
  CHECK(read_file(path) == "four");
  CHECK(folder.entries() == 1);
  std::ofstream(path + ".tmp") << "somebody's";
  write_atomically(path, "five");
  CHECK(read_file(path + ".tmp") == "somebody's");

  CHECK(message_of([&] { write_atomically(folder / "no/such", "x"); }).find("No such file") !=
        std::string::npos);
  CHECK(message_of([&] { write_atomically(folder.path.string(), "x"); }).find("not a file") !=
        std::string::npos);
  CHECK(message_of([&] { write_atomically(std::string("/dev/null"), "x"); }).find("not a file") !=
        std::string::npos);
}

TEST_CASE("one writer a folder") {
  const Folder folder;
  {
    const FolderLock lock(folder.path.string());
    const std::string error = message_of([&] { FolderLock{folder.path.string()}; });
    CHECK(error.starts_with("[lock] "));
    CHECK(error.find("another process") != std::string::npos);
  }
  CHECK(FolderLock(folder.path.string()).is_held());
  CHECK(message_of([&] { FolderLock{folder / "none"}; }).find("No such file") != std::string::npos);
}

TEST_CASE("UTF-8 there and back for every code point") {
  int wrong = 0;
  for (char32_t c = 0; c <= last_code_point; ++c) {
    if (is_surrogate(c)) continue;
    std::string bytes;
    append_utf8(c, bytes);
    const Utf8Character back = decode_utf8(bytes + "x");
    wrong += !back.valid || back.code != c || back.size != static_cast<int>(bytes.size());
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) wrong += decode_utf8(bytes.substr(0, cut)).valid;
  }
  CHECK(wrong == 0);
  std::string out;
  CHECK_THROWS_AS(append_utf8(0xD800, out), Error);
  CHECK_THROWS_AS(append_utf8(0x110000, out), Error);
}

TEST_CASE("what drives a terminal is shown, not sent") {
  CHECK(escape_controls("plain, \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \\") ==
        "plain, \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \\");
  CHECK(escape_controls("\x1B[2Ja\nb\tc\rd\x7F") == "\\x1b[2Ja\\nb\\tc\\rd\\x7f");
  CHECK(escape_controls(std::string_view("\0x", 2)) == "\\x00x");
  CHECK(escape_controls("\xC2\x9B"
                        "31m") == "\\x9b31m");                // C1: a one-character escape sequence
  CHECK(escape_controls("\xE2\x80\xAEgpj") == "\\u202egpj");  // turns the text around
  CHECK(escape_controls("\xFF\xC3(\xE2\x82") == "\\xff\\xc3(\\xe2\\x82");  // not UTF-8
  CHECK(escape_controls("a\nb\x1B", "\n\t") == "a\nb\\x1b");
}
