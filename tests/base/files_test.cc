#include "base/files.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace pd {
namespace {
namespace fs = std::filesystem;

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

}  // namespace
}  // namespace pd
