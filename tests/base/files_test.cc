#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/sysmacros.h>
#endif
#include <unistd.h>

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace pd {
namespace {
namespace fs = std::filesystem;

// An open file without a name; -1 where the system has none.
int MemoryFile() {
#ifdef __linux__
  return memfd_create("test", MFD_CLOEXEC);
#else
  return -1;
#endif
}

fs::path Scratch(const char* name) { return fs::path(::testing::TempDir()) / name; }

TEST(Files, WriteReadMap) {
  const fs::path path = Scratch("pd_files_test.txt");
  WriteFileAtomically(path, "first");
  WriteFileAtomically(path, "second");
  EXPECT_EQ(ReadTextFile(path), "second");
  const auto map = MappedFile::Open(path);
  EXPECT_EQ(map->bytes().size(), 6u);
  EXPECT_EQ(Digest(map->bytes()), Digest("second"));
  EXPECT_NE(Digest("second"), Digest("second", 1));
  EXPECT_THROW(ReadTextFile(path, 5), Error);
  fs::remove(path);
  EXPECT_THROW(ReadTextFile(path), Error);
  EXPECT_THROW(MappedFile::Open(path), Error);
  EXPECT_THROW(MappedFile::Open(::testing::TempDir()), Error);
}

TEST(Files, FailedWriteLeavesNothing) {
  const fs::path folder = Scratch("pd_files_test_folder");
  fs::create_directory(folder);
  EXPECT_THROW(WriteFileAtomically(folder / "no" / "such.txt", "x"), Error);
  fs::create_directories(folder / "taken" / "full");
  EXPECT_THROW(WriteFileAtomically(folder / "taken", "x"), Error);  // a folder that is not empty
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  fs::remove_all(folder);
}

class Outputs : public ::testing::Test {
 protected:
  static std::string What(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return fmt::format("{}: {}", Name(error.kind()), error.what());
    }
    return "no error";
  }
  fs::path Put(const char* name, std::string_view text) {
    WriteFileAtomically(folder_ / name, text);
    return folder_ / name;
  }
  size_t Count() const { return size_t(std::distance(fs::directory_iterator(folder_), {})); }

  void SetUp() override {
    std::string name = fs::temp_directory_path() / "pd_outputs.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(Outputs, AppearWholeOrNotAtAll) {
  const fs::path path = Put("a", "old");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  {
    OutputFile file(path);
    file.Write(std::as_bytes(std::span("new", 3)));
    EXPECT_EQ(ReadTextFile(path), "old");
  }
  EXPECT_EQ(ReadTextFile(path), "old");
  EXPECT_EQ(Count(), 1u);
  // A name that would have been ours, and is somebody's.
  const fs::path taken = Put(fmt::format("a.tmp{}", getpid()).c_str(), "mine");
  EXPECT_TRUE(WriteOutputFile(path, "new"));
  EXPECT_EQ(ReadTextFile(path), "new");
  EXPECT_EQ(ReadTextFile(taken), "mine");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(Count(), 2u);
  EXPECT_TRUE(WriteOutputFile(folder_ / std::string(255, 'n'), "as long as a name may be"));
}

TEST_F(Outputs, LinksStayAndTheirTargetsAreWritten) {
  Put("target", "old");
  fs::create_symlink("target", folder_ / "link");
  fs::create_symlink("link", folder_ / "chain");
  fs::create_symlink("absent", folder_ / "dangling");
  fs::create_symlink("circle", folder_ / "circle");
  EXPECT_TRUE(WriteOutputFile(folder_ / "chain", "new"));
  EXPECT_EQ(ReadTextFile(folder_ / "target"), "new");
  EXPECT_EQ(fs::read_symlink(folder_ / "chain"), "link");
  EXPECT_EQ(fs::read_symlink(folder_ / "link"), "target");
  EXPECT_TRUE(WriteOutputFile(folder_ / "dangling", "made"));
  EXPECT_EQ(fs::read_symlink(folder_ / "dangling"), "absent");
  EXPECT_EQ(ReadTextFile(folder_ / "absent"), "made");
  EXPECT_NE(What([&] { WriteOutputFile(folder_ / "circle", "x"); }).find("circle"), std::string::npos);
  EXPECT_TRUE(fs::is_symlink(folder_ / "circle"));
}

TEST_F(Outputs, PipesAndDevicesAreWrittenThrough) {
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_TRUE(WriteOutputFile(fifo, "text"));
  std::array<char, 8> got{};
  EXPECT_EQ(read(reader, got.data(), got.size()), 4);
  EXPECT_TRUE(fs::is_fifo(fifo));
  close(reader);
  // A device of our own: root could lose the system's to a fault. Others can neither make nor replace one.
  const fs::path own = folder_ / "null";
  const fs::path null = mknod(own.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0 ? own : fs::path("/dev/null");
  if (null == own || geteuid() != 0) {
    EXPECT_TRUE(WriteOutputFile(null, "text"));
    EXPECT_TRUE(fs::is_character_file(null));
  }
  // Files of ours are nowhere but in files.
  for (const fs::path& path : {fifo, null, folder_})
    EXPECT_NE(What([&] { WriteFileAtomically(path, "x"); }).find("no regular file"), std::string::npos)
        << path;
  // What has no name is written through as well.
  const int pipe = MemoryFile();
  if (pipe >= 0) {
    EXPECT_TRUE(WriteOutputFile(fmt::format("/dev/fd/{}", pipe), "text"));
    EXPECT_EQ(lseek(pipe, 0, SEEK_END), 4);
    close(pipe);
  }
}

TEST_F(Outputs, AnInputIsNoOutput) {
  const fs::path input = Put("in", "text");
  fs::create_symlink("in", folder_ / "link");
  fs::create_hard_link(input, folder_ / "hard");
  fs::create_directory(folder_ / "model");
  Put("model/weights", "w");
  const std::vector<fs::path> inputs = {input, folder_ / "model", folder_ / "absent", ""};
  for (const char* name : {"in", "link", "hard", "./in", "model/../in", "model/weights"})
    EXPECT_NE(What([&] { CheckOutput(folder_ / name, inputs); }).find("the same file as the input"),
              std::string::npos)
        << name;
  EXPECT_EQ(What([&] { CheckOutput(folder_ / "other", inputs); }), "no error");
  EXPECT_EQ(What([&] { CheckOutput("/dev/null", {{"/dev/null"}}); }), "no error");  // opens nothing
  EXPECT_NE(What([&] { CheckOutput("", inputs); }).find("empty"), std::string::npos);
  EXPECT_NE(What([&] { CheckOutput(folder_ / "model", inputs); }).find("is a folder"), std::string::npos);
  EXPECT_TRUE(What([&] { CheckOutput(folder_ / "no" / "such", inputs); }).starts_with("device"));
  EXPECT_EQ(Count(), 4u);
}

}  // namespace
}  // namespace pd
