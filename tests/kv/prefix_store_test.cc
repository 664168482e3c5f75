#include "kv/prefix_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

namespace fs = std::filesystem;

ModelSpec StoreSpec() {
  ModelSpec spec;
  spec.width = 4, spec.vocab = 100, spec.max_context = 64;
  AttentionSpec attention;
  attention.heads = attention.kv_heads = 1, attention.head_dim = 2;
  spec.layers.assign(2, PreNormLayer({}, attention, {.hidden = 4}));
  return spec;
}

class PrefixStoreTest : public ::testing::Test {
 protected:
  KvIdentity Id(uint64_t weights, const char* producer) const {
    return {SpecDigest(spec_), weights, ComputedBy(producer)};
  }
  PrefixStore Open(size_t limit = 1 << 20, uint64_t weights = 5, const char* producer = "cpu") {
    return {folder_.path() / "kv", spec_, Id(weights, producer), limit};
  }

  // Tokens [first, end) of a text.
  KvSegment Segment(int first, int end, const char* producer = "cpu") {
    KvSegment segment{.id = Id(5, producer), .first = first, .count = end - first};
    segment.layers.assign(2, KvLayerView{.dtype = DType::kF16});
    auto memory = std::make_shared<std::vector<uint16_t>>(CompactBytes(segment, spec_) / 2);
    for (size_t i = 0; i < memory->size(); ++i) (*memory)[i] = uint16_t(size_t(first) * 1000 + i);
    PlaceCompact(segment, spec_, reinterpret_cast<const std::byte*>(memory->data()));
    segment.owner = memory;
    return segment;
  }

  fs::path OnlyFile() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_.path() / "kv")) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.at(0);
  }
  size_t FileCount() const {
    return size_t(std::distance(fs::directory_iterator(folder_.path() / "kv"), fs::directory_iterator()));
  }

  const ModelSpec spec_ = StoreSpec();
  const TempFolder folder_;
  const std::vector<TokenId> text_ = {5, 6, 7, 8, 9, 10, 11, 12};
};

TEST_F(PrefixStoreTest, GivesBackWhatItWasGiven) {
  const KvSegment a = Segment(0, 3), b = Segment(3, 8);
  {
    PrefixStore store = Open();
    EXPECT_TRUE(store.Write(std::span(text_).first(3), 0, a));
    EXPECT_TRUE(store.Write(text_, 3, b));
  }
  PrefixStore store = Open();
  const auto entries = store.Scan();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].tokens, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(entries[0].first, 0);
  EXPECT_EQ(entries[1].tokens, text_);
  EXPECT_EQ(entries[1].first, 3);
  for (const auto& [entry, segment] : {std::pair(&entries[0], &a), std::pair(&entries[1], &b)}) {
    const auto read = store.Read(*entry->run);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->id, segment->id);
    EXPECT_EQ(read->first, segment->first);
    ASSERT_EQ(read->count, segment->count);
    for (size_t i = 0; i < 2; ++i) {
      const KvLayerView &got = read->kv(i), &want = segment->kv(i);
      EXPECT_EQ(std::memcmp(got.k, want.k, size_t(segment->count) * 4), 0);
      EXPECT_EQ(std::memcmp(got.v, want.v, size_t(segment->count) * 4), 0);
    }
  }
  EXPECT_TRUE(store.TakeWarnings().empty());
}

TEST_F(PrefixStoreTest, OtherModelsFilesAreTheirs) {
  Open().Write(text_, 0, Segment(0, 8));
  PrefixStore other = Open(1 << 20, 6);
  EXPECT_TRUE(other.Scan().empty());
  EXPECT_TRUE(other.TakeWarnings().empty());
  EXPECT_EQ(FileCount(), 1u);
  EXPECT_FALSE(other.Read({OnlyFile()}));
  EXPECT_EQ(other.TakeWarnings().size(), 1u);
}

// Keys and values of quantised weights look like any others: only their origin tells.
TEST_F(PrefixStoreTest, OtherProducersFilesAreTheirs) {
  Open().Write(text_, 0, Segment(0, 8));
  PrefixStore other = Open(1 << 20, 5, "mlx q4");
  EXPECT_TRUE(other.Scan().empty());
  EXPECT_FALSE(other.Read({OnlyFile()}));
  other.Write(text_, 0, Segment(0, 8, "mlx q4"));
  EXPECT_EQ(FileCount(), 2u);
  EXPECT_EQ(Open().Scan().size(), 1u);
}

TEST_F(PrefixStoreTest, DamagedAndForeignFilesAreIgnoredWithOneLine) {
  Open().Write(text_, 0, Segment(0, 8));
  const fs::path file = OnlyFile();
  const std::string good = ReadTextFile(file);
  size_t caught = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = char(bad[at] ^ 1);
    WriteFileAtomically(file, bad);
    PrefixStore store = Open();
    const auto entries = store.Scan();
    if (!entries.empty()) {
      const auto read = store.Read(*entries[0].run);
      if (read) continue;  // padding between header and payload
    }
    const auto warnings = store.TakeWarnings();
    ASSERT_EQ(warnings.size(), 1u) << at;
    EXPECT_NE(warnings[0].find(file.string()), std::string::npos);
    ++caught;
  }
  EXPECT_GT(caught, good.size() - 64);
  for (size_t size : {size_t(0), size_t(7), size_t(40), good.size() - 1}) {
    WriteFileAtomically(file, good.substr(0, size));
    PrefixStore store = Open();
    EXPECT_TRUE(store.Scan().empty());
    EXPECT_EQ(store.TakeWarnings().size(), 1u) << size;
  }
  WriteFileAtomically(file, good + "x");
  PrefixStore store = Open();
  EXPECT_TRUE(store.Scan().empty());
  EXPECT_EQ(store.TakeWarnings().size(), 1u);
  WriteFileAtomically(file, "a letter to my grandmother");
  EXPECT_TRUE(store.Scan().empty());
  EXPECT_EQ(store.TakeWarnings()[0], file.string() + ": not a prefix cache file: ignored");
}

TEST_F(PrefixStoreTest, RunsWithoutTheirBeginningAreDeleted) {
  PrefixStore store = Open();
  const auto first = store.Write(std::span(text_).first(3), 0, Segment(0, 3));
  store.Write(text_, 3, Segment(3, 8));
  fs::remove(first->file);
  EXPECT_TRUE(store.Scan().empty());
  EXPECT_EQ(FileCount(), 0u);
  EXPECT_TRUE(store.TakeWarnings().empty());
}

TEST_F(PrefixStoreTest, StaysWithinItsLimit) {
  Open().Write(text_, 0, Segment(0, 8));
  const size_t bytes = fs::file_size(OnlyFile());
  PrefixStore store = Open(3 * bytes + bytes / 2);
  std::vector<std::shared_ptr<const StoredRun>> runs;
  for (TokenId i = 0; i < 4; ++i) {
    auto tokens = text_;
    tokens[0] = 50 + i;
    if (i == 3) store.Read(*runs[0]);                            // used again
    std::this_thread::sleep_for(std::chrono::milliseconds(15));  // coarse file times
    runs.push_back(store.Write(tokens, 0, Segment(0, 8)));
    ASSERT_TRUE(runs.back());
  }
  EXPECT_EQ(FileCount(), 3u);
  EXPECT_TRUE(store.Read(*runs[0]));
  EXPECT_FALSE(store.Read(*runs[1]));
  EXPECT_TRUE(store.TakeWarnings().empty()) << "deleted to make room is no damage";
  EXPECT_FALSE(Open(bytes - 1).Write(text_, 0, Segment(0, 8)));
}

// A name proves nothing: neither room nor order is made among files of others, and a pipe is not waited for.
TEST_F(PrefixStoreTest, FilesOfOthersStay) {
  Open().Write(text_, 0, Segment(0, 8));
  const size_t bytes = fs::file_size(OnlyFile());
  const fs::path folder = folder_.path() / "kv";
  WriteFileAtomically(folder / "letter.pdkv", std::string(2 * bytes, 'x'));
  ASSERT_EQ(mkfifo((folder / "pipe.pdkv").c_str(), 0600), 0);
  fs::create_symlink("letter.pdkv", folder / "link.pdkv");
  PrefixStore store = Open(bytes);
  EXPECT_EQ(store.Scan().size(), 1u);
  EXPECT_EQ(store.TakeWarnings().size(), 3u);
  auto tokens = text_;
  tokens[0] = 50;
  EXPECT_TRUE(store.Write(tokens, 0, Segment(0, 8)));
  EXPECT_EQ(FileCount(), 4u) << "the one of ours made room";
  EXPECT_EQ(ReadTextFile(folder / "letter.pdkv"), std::string(2 * bytes, 'x'));
  EXPECT_TRUE(fs::is_fifo(folder / "pipe.pdkv"));
  EXPECT_TRUE(fs::is_symlink(folder / "link.pdkv"));
}

TEST_F(PrefixStoreTest, SaysWhatIsWrongWithItsFolder) {
  WriteFileAtomically(folder_.path() / "kv", "in the way");
  EXPECT_THROW(Open(), Error);
}

}  // namespace
}  // namespace pd::test
