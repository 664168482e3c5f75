#include "cli/text_input.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "tests/expect_error.h"
#include "tests/temp_folder.h"

namespace pd::cli {
namespace {

std::string Normalised(std::string text) {
  NormaliseText(text);
  return text;
}

TEST(NormaliseText, DropsTheMarkAndMakesLineEndsLf) {
  EXPECT_EQ(Normalised(""), "");
  EXPECT_EQ(Normalised("one\ntwo"), "one\ntwo");
  EXPECT_EQ(Normalised("\xEF\xBB\xBFone"), "one");
  EXPECT_EQ(Normalised("\xEF\xBB\xBF"), "");
  EXPECT_EQ(Normalised("one \xEF\xBB\xBF two"), "one \xEF\xBB\xBF two") << "only at the beginning";
  EXPECT_EQ(Normalised("a\r\nb\rc\nd"), "a\nb\nc\nd");
  EXPECT_EQ(Normalised("\r\r\n\n\r"), "\n\n\n\n");
  EXPECT_EQ(Normalised("\r"), "\n");
  EXPECT_EQ(Normalised(std::string("a\0\r\nb", 5)), std::string("a\0\nb", 4));
}

class ReadTextInputTest : public ::testing::Test {
 protected:
  std::string Read(const std::string& path, size_t limit = kMostPromptBytes) const {
    return ReadTextInput(path, interrupt_, limit);
  }
  const test::TempFolder folder_;
  const Interrupt interrupt_;
};

TEST_F(ReadTextInputTest, ReadsFilesFifosAndDevices) {
  EXPECT_EQ(Read(folder_.Write("file", "\xEF\xBB\xBFtwo\r\nlines\r\n")), "two\nlines\n");
  EXPECT_EQ(Read(folder_.Write("empty", "")), "");
  EXPECT_EQ(Read("/dev/null"), "");
  std::filesystem::create_symlink(folder_ / "file", folder_ / "link");
  EXPECT_EQ(Read(folder_ / "link"), "two\nlines\n");

  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string large(1 << 20, 'x');  // more than a fifo holds
  std::thread writer([&] { std::ofstream(fifo) << large << "\r\nend"; });
  EXPECT_EQ(Read(fifo), large + "\nend");
  writer.join();
}

TEST_F(ReadTextInputTest, SaysWhatCannotBeRead) {
  const std::string folder = folder_.path();
  test::ExpectError(ErrorKind::kNotFound, {"none: no such file"}, [&] { Read(folder_ / "none"); });
  test::ExpectError(ErrorKind::kBadRequest, {folder + ": a folder; name a file"}, [&] { Read(folder); });
  test::ExpectError(ErrorKind::kBadRequest, {"file: UTF-16 text; save it as UTF-8"}, [&] {
    Read(folder_.Write("file", std::string_view("\xFF\xFE"
                                                "a\0",
                                                4)));
  });
}

// The size of a device is not known before it is read.
TEST_F(ReadTextInputTest, TheLimitIsOfBytesRead) {
  EXPECT_EQ(Read(folder_.Write("file", "12345"), 5), "12345");
  test::ExpectError(ErrorKind::kBadRequest, {"file: more than 4 bytes, the most that is read"},
                    [&] { Read(folder_ / "file", 4); });
  test::ExpectError(ErrorKind::kBadRequest, {"/dev/zero: more than 100000 bytes"},
                    [&] { Read("/dev/zero", 100000); });
}

}  // namespace
}  // namespace pd::cli
