#include "cli/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "cli/part_log.h"
#include "tests/temp_folder.h"

namespace pd::cli {
namespace {

class ProgressBarTest : public testing::Test {
 protected:
  void SetUp() override {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0) GTEST_SKIP() << "this system has no pseudoterminals: is /dev/pts mounted?";
    close(master);
  }
};

// What `f` writes to standard error while that is a terminal.
template <class F>
std::string OnTerminal(F f) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_TRUE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  const int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
  const int saved = dup(STDERR_FILENO);
  dup2(terminal, STDERR_FILENO);
  f();
  dup2(saved, STDERR_FILENO);
  close(saved);
  fcntl(master, F_SETFL, O_NONBLOCK);
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t size; (size = read(master, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), size_t(size));
  close(terminal), close(master);
  return text;
}

constexpr auto kPatience = std::chrono::milliseconds(520);  // a little more than the bar's own

TEST_F(ProgressBarTest, AppearsAfterHalfASecondAndGoesAway) {
  const std::string text = OnTerminal([] {
    ProgressBar bar("loading", true);
    bar.Show(1, 100);
    std::this_thread::sleep_for(kPatience);
    bar.Show(50, 100);
    bar.Show(51, 100);  // too soon to draw again
  });
  EXPECT_EQ(text, "\rloading [###############               ]  50 %\r\x1b[K");
}

TEST_F(ProgressBarTest, IsSilentWhenUnwantedOrQuick) {
  EXPECT_EQ(OnTerminal([] {
              ProgressBar bar("loading", true);
              bar.Show(1, 2);
            }),
            "");
  EXPECT_EQ(OnTerminal([] {
              ProgressBar bar("loading", false);
              std::this_thread::sleep_for(kPatience);
              bar.Show(1, 2);
            }),
            "");
}

TEST_F(ProgressBarTest, IsForTerminalsOnly) {
  const test::TempFolder folder;
  const int saved = dup(STDERR_FILENO), file = open((folder / "stderr").c_str(), O_RDWR | O_CREAT, 0600);
  dup2(file, STDERR_FILENO);
  {
    ProgressBar bar("loading", true);
    std::this_thread::sleep_for(kPatience);
    bar.Show(1, 2);
  }
  dup2(saved, STDERR_FILENO);
  EXPECT_EQ(lseek(file, 0, SEEK_END), 0);
  close(saved), close(file);
}

TEST(PartLog, SaysWhatEndedAndWhatTakesLong) {
  testing::internal::CaptureStderr();
  {
    PartLog log(std::chrono::milliseconds(50));
    log.Show("first", 1, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    log.Show("first", 2, 3);
    log.Show("second");
    log.End();
    log.Show("third");  // does not end
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("first: 1 of 3, 0 s so far\n"), std::string::npos) << said;
  EXPECT_LT(said.find("first: done in 0."), said.find("second: done in 0.0 s\n")) << said;
  EXPECT_EQ(said.find("third"), std::string::npos) << said;
}

}  // namespace
}  // namespace pd::cli
