#include "cli/text_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/files.h"

namespace pd::cli {
namespace {

constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF", kUtf16Little = "\xFF\xFE", kUtf16Big = "\xFE\xFF";

class Input {
 public:
  Input(const std::string& path, const Interrupt* interrupt) : name_(InputName(path)), interrupt_(interrupt) {
    if (path == "-") {
      file_ = STDIN_FILENO;
      return;
    }
    // A fifo opens when somebody writes to it.
    while ((file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC)) < 0) {
      CheckInterrupt();
      if (errno == EINTR) continue;
      throw Fail(ErrorKind::kNotFound, "{}: {}", name_,
                 errno == ENOENT ? "no such file" : SystemMessage(errno));
    }
    owned_ = true;
  }
  ~Input() {
    if (owned_) close(file_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  std::string ReadToEnd(size_t limit) {
    std::string text;
    std::array<char, 1 << 16> buffer;
    for (;;) {
      const ssize_t size = read(file_, buffer.data(), buffer.size());
      CheckInterrupt();
      if (size == 0) return text;
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && errno == EISDIR) throw Fail(ErrorKind::kBadRequest, "{}: a folder; name a file", name_);
      if (size < 0) throw Fail(ErrorKind::kBadRequest, "{}: cannot be read: {}", name_, SystemMessage(errno));
      text.append(buffer.data(), size_t(size));
      if (text.size() > limit)
        throw Fail(ErrorKind::kBadRequest, "{}: more than {} bytes, the most that is read", name_, limit);
    }
  }

 private:
  void CheckInterrupt() const {
    if (interrupt_) interrupt_->Check();
  }

  const std::string name_;
  const Interrupt* const interrupt_;
  int file_ = -1;
  bool owned_ = false;
};

std::string Read(const std::string& path, const Interrupt* interrupt, size_t limit) {
  std::string text = Input(path, interrupt).ReadToEnd(limit);
  if (text.starts_with(kUtf16Little) || text.starts_with(kUtf16Big))
    throw Fail(ErrorKind::kBadRequest, "{}: UTF-16 text; save it as UTF-8", InputName(path));
  NormaliseText(text);
  return text;
}

}  // namespace

std::string InputName(const std::string& path) { return path == "-" ? "standard input" : path; }

std::string ReadTextInput(const std::string& path, const Interrupt& interrupt, size_t limit) {
  return Read(path, &interrupt, limit);
}

std::string ReadTextInput(const std::string& path) { return Read(path, nullptr, kMostPromptBytes); }

void NormaliseText(std::string& text) {
  if (text.starts_with(kUtf8Mark)) text.erase(0, kUtf8Mark.size());
  size_t to = text.find('\r');
  if (to == std::string::npos) return;
  for (size_t from = to; from < text.size(); ++from) {
    const bool cr = text[from] == '\r';
    if (cr && from + 1 < text.size() && text[from + 1] == '\n') ++from;
    text[to++] = cr ? '\n' : text[from];
  }
  text.resize(to);
}

}  // namespace pd::cli
