#include "io/csv.h"

#include <fcntl.h>

#include <filesystem>
#include <fstream>

#include "core/text.h"
#include "io/json.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// Creates a missing log with its header. Error: the log has another header. Returns the path.
const std::string& with_header(const std::string& path, const std::string& columns) {
  if (!fs::exists(path)) write_atomically(path, columns + "\n");
  std::string header;
  std::ifstream log(path);
  std::getline(log, header);
  require(header == columns, "csv", path, ": the header is ", quote(header), "; expected ", columns,
          "; another version wrote the log: go on with that one, or start again with --overwrite");
  return path;
}

}  // namespace

CsvWriter::CsvWriter(const std::string& path, const std::string& columns)
    : path_(path), file_(with_header(path, columns), O_WRONLY | O_APPEND) {
  require(file_.is_open(), "csv", path, ": cannot be opened for writing: ", errno_text());
  size_ = fs::file_size(path);
}

void CsvWriter::cut(Index last_step) {
  const std::string log = read_file(path_, "csv");
  size_ = log.find('\n') + 1;
  std::optional<std::string> damaged;  // the first row since size_ that does not begin with a step
  for (std::size_t begin = size_, end; (end = log.find('\n', begin)) != log.npos; begin = end + 1) {
    const auto step = parse_number<Index>(log.substr(begin, log.find(',', begin) - begin));
    if (!step && !damaged) damaged = log.substr(begin, end - begin);
    if (!step) continue;
    if (*step > last_step) break;
    if (damaged)
      fail("csv", path_, ": a row is ", quote(*damaged),
           "; expected one that begins with a step; the file was changed or is damaged");
    size_ = end + 1;
  }
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
