#include "io/csv.h"

#include <fcntl.h>

#include <filesystem>

#include "io/json.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// Bytes of a log's header and of its rows up to a step, without a torn last line. Creates a missing log.
std::uintmax_t open_log(const std::string& path, const std::string& header, std::optional<Index> last_step) {
  if (!last_step || !fs::exists(path)) {
    write_atomically(path, header);
    return header.size();
  }
  const std::string log = read_file(path, "csv");
  require(log.starts_with(header), "csv", path, ": the header is ", quote(log.substr(0, log.find('\n'))),
          "; expected ", header.substr(0, header.size() - 1));
  std::size_t size = header.size();
  for (std::size_t end; (end = log.find('\n', size)) != log.npos; size = end + 1) {
    Index step = 0;
    const char* after = std::from_chars(log.data() + size, log.data() + end, step).ptr;
    if (*after != ',')
      fail("csv", path, ": a row is ", quote(log.substr(size, end - size)),
           "; expected one that begins with a step; the file was changed or is damaged");
    if (step > *last_step) break;
  }
  return size;
}

}  // namespace

CsvWriter::CsvWriter(const std::string& path, const std::string& columns, std::optional<Index> last_step)
    : path_(path), size_(open_log(path, columns + "\n", last_step)), file_(path, O_WRONLY | O_APPEND) {
  require(file_.is_open(), "csv", path_, ": cannot be opened for writing: ", errno_text());
  fs::resize_file(path_, size_);
}

void CsvWriter::flush() {
  require(fs::exists(path_), "csv", path_,
          ": was removed while the run writes it; --resume goes on without the rows before");
  if (!file_.write(rows_)) {
    const std::string reason = errno_text();
    std::error_code ignored;
    fs::resize_file(path_, size_, ignored);  // a full disk took a part of them: leave whole rows
    fail("csv", path_, ": cannot be written: ", reason);
  }
  size_ += rows_.size();
  rows_.clear();
}

void CsvWriter::sync() {
  flush();
  if (!file_.sync()) fail("csv", path_, ": cannot be synced: ", errno_text());
}

}  // namespace normscope
