#include "io/csv.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "io/utf8.h"

namespace normscope {
namespace {

// Walks over the records of a CSV text. A record that its newline does not end is torn and never returned.
class Records {
 public:
  Records(std::string_view bytes, const std::string& path) : text_(bytes), path_(path) {}

  // The next record in `fields`; false at the end or where a torn record begins.
  bool next(std::vector<std::string>& fields);

  std::size_t end() const { return end_; }  // the byte after the last record returned
  Index line() const { return line_; }      // where the last record returned begins, from 1
  template <class... Parts>
  [[noreturn]] void stop(const Parts&... what) const {
    fail("csv", printable(path_), ":", line_, ": ", what...);
  }

 private:
  enum class Read { more_fields, end_of_record, torn };
  Read quoted_field(std::size_t& at, std::string& out) const;
  Read field(std::size_t& at, std::string& out) const;
  Read after_field(std::size_t& at) const;

  std::string_view text_;
  const std::string& path_;
  std::size_t end_ = 0;
  Index line_ = 0;
  Index next_line_ = 1;
};

bool Records::next(std::vector<std::string>& fields) {
  fields.clear();
  line_ = next_line_;
  std::size_t at = end_;
  for (Read read = Read::more_fields; read == Read::more_fields;) {
    if (at >= text_.size()) return false;
    fields.emplace_back();
    read = text_[at] == '"' ? quoted_field(at, fields.back()) : field(at, fields.back());
    if (read == Read::torn) return false;
  }
  next_line_ +=
      std::count(text_.begin() + static_cast<Index>(end_), text_.begin() + static_cast<Index>(at), '\n');
  end_ = at;
  return true;
}

Records::Read Records::field(std::size_t& at, std::string& out) const {
  const std::size_t stop = std::min(text_.find_first_of(",\n", at), text_.size());
  out = text_.substr(at, stop - at);
  at = stop;
  if (at < text_.size() && text_[at] == '\n' && out.ends_with('\r')) out.pop_back();
  return after_field(at);
}

Records::Read Records::quoted_field(std::size_t& at, std::string& out) const {
  for (++at;;) {
    const std::size_t quote = text_.find('"', at);
    if (quote == text_.npos) return Read::torn;
    out += text_.substr(at, quote - at);
    at = quote + 1;
    if (!text_.substr(at).starts_with('"')) break;
    out += text_[at++];  // two quotes stand for one
  }
  if (text_.substr(at).starts_with("\r\n")) ++at;
  return after_field(at);
}

Records::Read Records::after_field(std::size_t& at) const {
  if (at >= text_.size() || (text_[at] == '\r' && at + 1 == text_.size())) return Read::torn;
  if (text_[at] != ',' && text_[at] != '\n') stop("text after the closing quote of a field");
  return text_[at++] == ',' ? Read::more_fields : Read::end_of_record;
}

std::string header_line(const std::vector<std::string>& columns) {
  std::string line;
  for (const std::string& column : columns) line += (line.empty() ? "" : ",") + column;
  return line;
}

}  // namespace

CsvWriter::CsvWriter(const std::string& path, const std::vector<std::string>& columns, Open how)
    : path_(path), columns_(columns.size()) {
  const int mode = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (how == Open::create ? O_TRUNC : 0);
  file_ = Descriptor(::open(path.c_str(), mode, 0666));
  require(file_.is_open(), "csv", printable(path), ": cannot be opened for writing: ", errno_text());

  const std::string old = how == Open::append ? read_file(path, {.where = "csv"}) : "";
  Records records(old, path_);
  std::vector<std::string> fields;
  if (!records.next(fields)) {
    cut(0);  // a header may have been torn too
    for (const std::string& column : columns) cell(column);
    end_row();
    flush();
    return;
  }
  if (fields != columns) {
    records.stop("the header is `", printable(header_line(fields)), "`; expected `", header_line(columns),
                 "`");
  }
  // Only the last line can be torn, so the whole rows end at the last newline; no cell of
  // ours holds a newline.
  const Index whole = static_cast<Index>(old.rfind('\n') + 1);
  size_ = static_cast<Index>(old.size());
  if (whole < size_) cut(whole);
}

CsvWriter::~CsvWriter() {
  if (!file_.is_open()) return;  // moved from
  try {
    buffer_.resize(buffer_.rfind('\n') + 1);  // not half a row (npos + 1 is 0)
    flush();
  } catch (const Error&) {
  }
}

std::string CsvWriter::rows_until(Index step) const {
  std::string old = read_file(path_, {.where = "csv"});
  Records records(old, path_);
  std::vector<std::string> fields;
  records.next(fields);  // the header
  std::size_t keep = records.end();
  while (records.next(fields)) {
    const std::string& cell = fields.front();
    Index row_step = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), row_step);
    if (error != std::errc() || end != cell.data() + cell.size()) {
      records.stop("`", printable(cell), "` is not a step; the file was changed or is damaged");
    }
    if (row_step > step) break;
    keep = records.end();
  }
  old.resize(keep);
  return old;
}

void CsvWriter::truncate_after(Index step) {
  flush();
  cut(std::ssize(rows_until(step)));
}

void CsvWriter::replace_after(Index step) {
  const std::string kept = rows_until(step);
  write_atomically(path_, kept, buffer_);
  size_ = std::ssize(kept) + std::ssize(buffer_);
  buffer_.clear();
  file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
  require(file_.is_open(), "csv", printable(path_), ": cannot be opened for writing: ", errno_text());
}

void CsvWriter::cut(Index size) {
  if (::ftruncate(file_.get(), size) != 0)
    fail("csv", printable(path_), ": cannot be shortened: ", errno_text());
  size_ = size;
}

void CsvWriter::add(std::string_view cell) {
  if (cells_++ > 0) buffer_ += ',';
  buffer_ += cell;
}

void CsvWriter::cell(double value) {
  if (std::isnan(value)) return add("nan");  // to_chars would show the sign of a NaN, which means nothing
  char digits[32];
  add({digits, std::to_chars(digits, digits + sizeof digits, value).ptr});
}

void CsvWriter::cell(float value) {
  if (std::isnan(value)) return add("nan");
  char digits[32];
  add({digits, std::to_chars(digits, digits + sizeof digits, value).ptr});
}

void CsvWriter::cell(std::string_view value) {
  if (value.find_first_of(",\"\r\n") == value.npos) return add(value);
  add("\"");
  for (const char c : value) buffer_.append(c == '"' ? 2 : 1, c);
  buffer_ += '"';
}

void CsvWriter::end_row() {
  require(cells_ == columns_, "csv", printable(path_), ": a row of ", cells_, " cells; expected ", columns_);
  buffer_ += '\n';
  cells_ = 0;
}

void CsvWriter::flush() {
  require(cells_ == 0, "csv", printable(path_), ": flushed within a row");
  if (!write_all(file_.get(), buffer_)) {
    const std::string reason = errno_text();
    buffer_.clear();
    cut(size_);  // a full disk took a part of it: leave whole rows
    fail("csv", printable(path_), ": cannot be written: ", reason);
  }
  size_ += static_cast<Index>(buffer_.size());
  buffer_.clear();
}

void CsvWriter::sync() {
  flush();
  if (::fsync(file_.get()) != 0 && errno != EINVAL) {
    fail("csv", printable(path_), ": cannot be synced: ", errno_text());
  }
}

std::optional<std::size_t> CsvTable::find(std::string_view name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - columns.begin());
}

std::size_t CsvTable::column(std::string_view name) const {
  const auto found = find(name);
  require(found.has_value(), "csv", printable(path), ": no column ", name);
  return *found;
}

std::optional<double> CsvTable::number(std::size_t row, std::size_t column) const {
  const std::string& cell = rows.at(row).at(column);
  if (cell.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  require(error == std::errc() && end == cell.data() + cell.size(), "csv", printable(path), ": row ", row + 1,
          ", column ", printable(columns[column]), ": `", printable(cell), "` is not a number");
  return value;
}

CsvTable read_csv(const std::string& path) {
  const std::string bytes = read_file(path, {.where = "csv"});
  Records records(bytes, path);
  CsvTable table{path, {}, {}, false};
  require(records.next(table.columns), "csv", printable(path), ": no header line");
  std::vector<std::string> fields;
  while (records.next(fields)) {
    if (fields.size() != table.columns.size()) {
      records.stop(fields.size(), " fields; expected ", table.columns.size());
    }
    table.rows.push_back(std::move(fields));
  }
  table.torn = records.end() < bytes.size();
  return table;
}

}  // namespace normscope
