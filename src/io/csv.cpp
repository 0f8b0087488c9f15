#include "io/csv.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "io/utf8.h"

namespace normscope {
namespace {

// Bytes of a log's header and its rows of steps up to `step`, a torn last line left out; 0: it has no header.
Index size_until(Index step, const std::string& path, const std::string& header) {
  const std::string log = read_file(path, {.where = "csv"});
  if (log.find('\n') == log.npos) return 0;
  if (!log.starts_with(header))
    fail("csv", escape_controls(path), ": the header is `", escape_controls(log.substr(0, log.find('\n'))),
         "`; expected `", header.substr(0, header.size() - 1), "`");
  std::size_t size = header.size();
  for (std::size_t end; (end = log.find('\n', size)) != log.npos; size = end + 1) {
    Index row_step = 0;
    const char* row = log.data() + size;
    const auto parsed = std::from_chars(row, log.data() + end, row_step);
    if (parsed.ec != std::errc() || *parsed.ptr != ',')
      fail("csv", escape_controls(path), ": a row begins `", escape_controls(log.substr(size, 20)),
           "`; expected a step; the file was changed or is damaged");
    if (row_step > step) break;
  }
  return static_cast<Index>(size);
}

}  // namespace

void CsvRows::append(std::string_view cell) {
  if (cells_++ > 0) text_ += ',';
  text_ += cell;
}

void CsvRows::cell(std::string_view value) {
  const auto is_special = [](char c) { return c == ',' || c == '"' || c == '\r' || c == '\n'; };
  if (std::ranges::none_of(value, is_special)) return append(value);
  append("\"");
  for (const char c : value) text_.append(c == '"' ? 2 : 1, c);
  text_ += '"';
}

void CsvRows::end_row() {
  require(cells_ == columns_.size(), "csv", "a row of ", cells_, " cells; expected ", columns_.size());
  text_ += '\n';
  cells_ = 0;
}

std::string CsvRows::header() const {
  CsvRows names(columns_);
  for (const std::string& column : columns_) names.cell(column);
  names.end_row();
  return names.text_;
}

CsvWriter::CsvWriter(const std::string& path, const std::vector<std::string>& columns,
                     std::optional<Index> last_step)
    : CsvRows(columns), path_(path) {
  if (last_step && std::filesystem::exists(path)) size_ = size_until(*last_step, path, header());
  if (size_ == 0) write_atomically(path, header());
  size_ = std::max(size_, std::ssize(header()));
  file_ = FileDescriptor(path_, O_RDWR | O_APPEND);
  require(file_.is_open(), "csv", escape_controls(path_), ": cannot be opened for writing: ", errno_text());
  cut(size_);
}

void CsvWriter::cut(Index size) {
  if (::ftruncate(file_.get(), size) != 0)
    fail("csv", escape_controls(path_), ": cannot be shortened: ", errno_text());
}

void CsvWriter::flush() {
  struct stat status {};
  if (::fstat(file_.get(), &status) == 0 && status.st_nlink == 0)
    fail("csv", escape_controls(path_), ": was removed while the run writes it; start again with --overwrite");
  if (!write_all(file_.get(), text_)) {
    const std::string reason = errno_text();
    text_.clear();
    cut(size_);  // a full disk took a part of it: leave whole rows
    fail("csv", escape_controls(path_), ": cannot be written: ", reason);
  }
  size_ += std::ssize(text_);
  text_.clear();
}

void CsvWriter::sync() {
  flush();
  if (::fsync(file_.get()) != 0 && errno != EINVAL)
    fail("csv", escape_controls(path_), ": cannot be synced: ", errno_text());
}

}  // namespace normscope
