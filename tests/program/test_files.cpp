// Whole reads, atomic replacement, logs that are mended, and text that is safe for a terminal. Locks and what a kill
// leaves behind: test_cli_resume.py, test_crash.py.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <csignal>
#include <limits>
#include <vector>

#include "core/machine.h"
#include "io/csv.h"
#include "io/utf8.h"
#include "messages.h"
#include "train/checkpoint.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

template <class Body>
std::string failure(const Body& body) {
  return message(body, "no error", Exit::failure);
}

template <class... Cells>
void add_row(CsvWriter& log, const Cells&... cells) {
  (log.cell(cells), ...);
  log.end_row();
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

TEST_CASE("files: read_file gives every byte and says why it cannot") {
  const ScratchFile file;
  CHECK_HOLDS(message([&] { file.bytes(); }), file.path + ": No such file");
  std::string bytes("a\0\r\n\xFF", 5);
  for (int i = 0; i < 200'000; ++i) bytes += static_cast<char>(i);
  file.set(bytes);
  CHECK(file.bytes() == bytes);
  file.set("");
  CHECK(file.bytes().empty());
  CHECK(read_file("/proc/self/stat").size() > 10);  // a file that claims to have no bytes
  file.set("12345");
  CHECK(read_file(file.path, "topic", 5) == "12345");
  CHECK_HOLDS(message([&] { read_file(file.path, "topic", 4); }), "is larger than 4 bytes");
  CHECK_HOLDS(failure([&] { read_file("/tmp", "topic"); }), "[topic] /tmp: cannot be read: Is a directory");
}

TEST_CASE("files: a file is replaced whole or not at all, and nothing is left beside it") {
  const ScratchFolder folder;
  for (const std::string& path : {folder.file("short"), folder.file(std::string(255, 'n'))}) {
    const std::string_view pieces[] = {"one, ", "two"};
    write_atomically(path, "zero");
    write_atomically(path, pieces);
    CHECK(read_file(path) == "one, two");
    const std::string large(5000, 'x');
    {
      const SmallDisk disk(1000);
      CHECK(failure([&] { write_atomically(path, large); }) ==
            "[file] " + path + ": cannot be written: File too large");
    }
    CHECK(read_file(path) == "one, two");
  }
  CHECK(folder.entries() == 2);
  CHECK_HOLDS(failure([] { write_atomically("/no/such", "x"); }), "No such file");
  for (const char* no_file : {"/tmp", "/dev/null"})
    CHECK_HOLDS(failure([&] { write_atomically(no_file, "x"); }), "is not a file");
}

TEST_CASE("files: a signal while the program waits for bytes interrupts it") {
  const ScratchFile pipe("pipe");
  REQUIRE(::mkfifo(pipe.path.c_str(), 0600) == 0);
  const FileDescriptor writer(pipe.path, O_RDWR);  // so that a reader neither waits for one nor sees an end
  struct sigaction action {
  }, old{};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, &old);
  const itimerval soon{{0, 10'000}, {0, 10'000}};  // again and again: the first may come before the read
  ::setitimer(ITIMER_REAL, &soon, nullptr);
  CHECK(message([&] { read_file(pipe.path, "corpus"); }, "no error", Exit::interrupted) ==
        "[corpus] " + pipe.path + ": reading was interrupted");
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &old, nullptr);
}

TEST_CASE("csv: cells of every kind are written, in whole rows at a flush") {
  const ScratchFile file;
  CsvWriter log(file.path, "step,a,b");
  CHECK(file.bytes() == "step,a,b\n");
  add_row(log, 1, Index{-2}, 0.1f);
  add_row(log, std::uint64_t{1} << 63, -std::nan(""), -std::numeric_limits<double>::infinity());
  add_row(log, "text", std::optional<double>(), std::optional(1e300));
  CHECK(file.bytes() == "step,a,b\n");
  log.flush();
  CsvWriter moved = std::move(log);
  add_row(moved, 3, -0.0, 1e-7f);
  moved.sync();
  CHECK(file.bytes() == "step,a,b\n1,-2,0.1\n9223372036854775808,nan,-inf\ntext,,1e+300\n3,-0,1e-07\n");
}

TEST_CASE("csv: going on mends a torn last line, drops later steps and checks that the rows are one trajectory") {
  const ScratchFile file;
  const auto log_of = [](std::initializer_list<const char*> rows) {
    std::string log = "step,site,value\n";
    for (const char* row : rows) log.append(row).append("\n");
    return log;
  };
  const auto cut = [&](Index last_step, const std::string& before) {
    file.set(before);
    CsvWriter log(file.path, "step,site,value");
    log.check(last_step, 2, [](Index step) { return step == 1 || step % 10 == 0; });
    log.cut();
    return file.bytes();
  };
  const std::string rows = log_of({"1,a,", "1,b,0", "10,a,1", "10,b,2", "20,a,3", "20,b,4", "30,a,5", "30,b,6"});
  CHECK(cut(0, rows) == log_of({}));
  CHECK(cut(9, rows) == log_of({"1,a,", "1,b,0"}));
  CHECK(cut(20, rows) == log_of({"1,a,", "1,b,0", "10,a,1", "10,b,2", "20,a,3", "20,b,4"}));
  for (const char* torn : {"", "4", "40,", "5,to"}) CHECK(cut(30, rows + torn) == rows);
  const std::string lost(7, '\0');  // a page that a power failure has kept from the disk
  for (const std::string& tail : {lost + "\n", "31,a,e\n" + lost + ",f\n40,b,g\n", "3" + lost + "40,g\n41,a,h\n",
                                  lost + "0,g\n" + lost + "\n51,", std::string("\n,\noops\n")})
    CHECK(cut(30, rows + tail) == rows);

  const auto refused = [&](const std::string& before, const char* why) {
    CHECK_HOLDS(failure([&] { cut(30, before); }), why);
    CHECK(file.bytes() == before);
  };
  refused("step,other\n1,2\n", "expected step,site,value");
  refused("step,site,value\r\n1,a,2\r\n", "end in CR LF");
  for (const char* damaged : {"oops,a,0", "10,a", "10,a,0,", "10;a,0", ",a,0", "0,a,0", "1e1,a,0"}) {
    refused(log_of({"1,a,0", damaged, "30,a,0"}), "line 3: got");
    refused(log_of({"1,a,0", damaged, "", "40,a,0", "20,a,0"}), "line 3: got");
  }
  std::string with_nul = rows;
  with_nul[rows.find("20,b") + 5] = '\0';
  refused(with_nul, "line 7: got");
  refused(rows + rows.substr(rows.find("1,a")), "line 10: step 1 follows step 30");
  refused(log_of({"1,a,", "1,b,0", "1,a,", "1,b,0"}), "line 4: 1,a stands there for the second time");
  refused(log_of({"1,a,", "1,a,", "1,b,0", "1,b,0"}), "line 3: 1,a stands there for the second time");
  refused(log_of({"1,a,", "10,a,", "90,a,", "20,a,"}), "line 4: expected a row of step 20 after step 10");
  refused(log_of({"1,a,", "1,b,", "10,b,", "20,a,", "20,b,"}), "line 5: step 10 ends after 1 rows; expected 2");
  refused(log_of({"1,a,", "20,a,", "30,a,"}), "line 3: expected a row of step 10 after step 1");
  refused(log_of({"10,a,", "20,a,", "30,a,"}), "line 2: expected a row of step 1 after step 0");
  refused(log_of({"1,a,", "10,a,", "20,a,"}), "line 5: expected a row of step 30 after step 20");
  refused(log_of({"1,a,", "10,a,", "90,a,"}), "line 4: expected a row of step 20 after step 10");
}

TEST_CASE("csv: whole rows are left if the disk becomes full") {
  const ScratchFile file;
  CsvWriter log(file.path, "step,value");
  add_row(log, 1, 2);
  log.flush();
  add_row(log, 2, std::string(5000, 'x'));
  const SmallDisk disk(1000);
  CHECK_HOLDS(failure([&] { log.flush(); }), "cannot be written: File too large");
  CHECK(file.bytes() == "step,value\n1,2\n");
}

TEST_CASE("UTF-8: every code point encodes to what decodes to it, and nothing else decodes") {
  int wrong = 0;
  for (char32_t c = 0; c <= last_code_point; ++c) {
    if (!is_code_point(c)) continue;
    const std::string bytes = to_utf8(c);
    const auto back = decode_utf8(bytes + "x");
    wrong += !back || back->code != c || back->size != bytes.size();
    for (std::size_t cut = 1; cut < bytes.size(); ++cut)
      wrong += decode_utf8(bytes.substr(0, cut)).has_value();
  }
  for (std::uint32_t number = 0x800000; number <= 0xFFFFFF; ++number) {  // the first three bytes of four
    for (const char last : {'\x7F', '\x80', '\xBF', '\xC0'}) {
      const std::string text = {static_cast<char>(number >> 16), static_cast<char>(number >> 8),
                                static_cast<char>(number), last};
      const auto character = decode_utf8(text);
      wrong += character && to_utf8(character->code) != text.substr(0, character->size);
    }
  }
  CHECK(wrong == 0);
  CHECK_THROWS_AS(to_utf8(0xD800), Error);
  CHECK_THROWS_AS(to_utf8(0x110000), Error);
}

TEST_CASE("control characters are spelled out, not sent") {
  CHECK(escape_controls("plain, \u00e9 \u20ac \U0001F600 \\") == "plain, \u00e9 \u20ac \U0001F600 \\");
  CHECK(escape_controls("\x1B[2Ja\nb\x7F\u009b31m") == "\\x1b[2Ja\\x0ab\\x7f\\x9b31m");
  CHECK(escape_controls(std::string_view("\0x", 2)) == "\\x00x");
  CHECK(escape_controls("\u202egpj") == "\\u202egpj");                     // turns the text around
  CHECK(escape_controls("\xFF\xC3(\xE2\x82") == "\\xff\\xc3(\\xe2\\x82");  // not UTF-8
  CHECK(escape_controls("a\nb\x1B", "\n\t") == "a\nb\\x1b");
  for (char32_t c = 0; c < 0x100; ++c) {
    const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
    CHECK((escape_controls(to_utf8(c)) != to_utf8(c)) == is_control);
  }
}

TEST_CASE("machine: the limits are those of the process's control groups and of all above them") {
  using Files = std::vector<std::pair<std::string, std::string>>;  // below the root, and their bytes
  constexpr double none = std::numeric_limits<double>::infinity();
  const auto limits = [](const Files& files) {
    const ScratchFolder root;
    for (const auto& [name, bytes] : files) {
      std::filesystem::create_directories(std::filesystem::path(root.file(name)).parent_path());
      root.write(name, bytes);
    }
    const GroupLimits found = group_limits(root.path);
    return std::pair(found.processors, found.memory_bytes);
  };
  const std::pair own{"proc/self/cgroup", "0::/user/job\n"};  // version 2
  const std::string group = "sys/fs/cgroup/";
  CHECK(limits({}) == std::pair(none, none));
  CHECK(
      limits({own, {group + "user/job/cpu.max", "max 100000\n"}, {group + "user/job/memory.max", "max\n"}}) ==
      std::pair(none, none));
  CHECK(
      limits({own, {group + "user/job/cpu.max", "150000 100000\n"}, {group + "user/memory.max", "4096\n"}}) ==
      std::pair(1.5, 4096.0));
  CHECK(limits({own,
                {group + "user/job/cpu.max", "400000 100000\n"},
                {group + "user/cpu.max", "200000 100000\n"}}) == std::pair(2.0, none));
  CHECK(limits({own, {group + "cpu.max", "100000 100000\n"}, {group + "memory.max", "8192\n"}}) ==
        std::pair(1.0, 8192.0));  // a container's root, under a path of the host
  const std::pair old{"proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/x\n0::/\n"};
  CHECK(limits({old,
                {group + "cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n"},
                {group + "cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"},
                {group + "cpu,cpuacct/cpu.cfs_quota_us", "300000\n"},
                {group + "cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
                {group + "memory/job/memory.limit_in_bytes", "1048576\n"}}) == std::pair(3.0, 1048576.0));
}

TEST_CASE("a checkpoint keeps figures that are not finite: those of a skipped step whose evaluation was interrupted") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  RunRecord kept, read;
  kept.final_train_loss = infinity;
  kept.unlogged_grad_norm = -nan;
  CHECK(kept_figures(kept).at("unlogged_grad_norm") == "nan");
  set_figures("checkpoint.safetensors", kept_figures(kept), read);
  CHECK(read.final_train_loss == infinity);
  CHECK(std::isnan(read.unlogged_grad_norm.value_or(0)));
  CHECK(read.growth == std::nullopt);
}
