#include "kv/prefix_store.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <map>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/mapped_file.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr const char* kExtension = ".pdkv";
constexpr char kMagic[8] = {'p', 'd', '-', 'k', 'v', '-', '0', '2'};
constexpr size_t kAlignment = 64;  // of the payload

// The start of a file; the header, in JSON, follows.
struct Preamble {
  char magic[sizeof kMagic];
  uint64_t header_bytes, header_digest, payload_digest;
};

// Whether a file begins as those of a prefix cache do: others are not ours to delete.
bool IsOurs(const fs::path& file) {
  std::array<char, sizeof kMagic> magic{};
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  std::ifstream in(file, std::ios::binary);
  // Of any version: all but its two digits.
  return in.read(magic.data(), magic.size()) && std::memcmp(magic.data(), kMagic, sizeof kMagic - 2) == 0;
}

std::string Hex(uint64_t value) { return fmt::format("{:016x}", value); }

uint64_t ReadHex(JsonReader& json, std::string_view key) {
  const std::string text = json.String(key);
  size_t read = 0;
  if (text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos)
    return std::stoull(text, &read, 16);
  throw Fail(ErrorKind::kCorruptFile, "{}: {} is not a digest", json.where(), key);
}

size_t PayloadAt(size_t header_bytes) {
  return (sizeof(Preamble) + header_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

DType PlainType(const std::string& name, const std::string& where) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
    if (name == Name(type)) return type;
  throw Fail(ErrorKind::kCorruptFile, "{}: keys and values of type '{}'", where, name);
}

std::vector<TokenId> ReadTokens(const Json& json, const std::string& where) {
  std::vector<TokenId> tokens;
  if (!json.is_array() || json.empty()) throw Fail(ErrorKind::kCorruptFile, "{}: no tokens", where);
  for (const Json& token : json) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() > INT32_MAX)
      throw Fail(ErrorKind::kCorruptFile, "{}: an invalid token id", where);
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

// A layer's memory as text: the dtype of its keys and values, "state", or "none".
const char* LayerText(const LayerMemory& memory) {
  if (const auto* view = std::get_if<KvLayerView>(&memory)) return Name(view->dtype);
  return std::holds_alternative<StateView>(memory) ? "state" : "none";
}

// Views without memory, with the sizes of the layer.
LayerMemory ReadLayer(const Json& json, const LayerSpec& layer, const std::string& where) {
  if (!json.is_string()) throw Fail(ErrorKind::kCorruptFile, "{}: a layer that is not a string", where);
  const auto& text = json.get_ref<const std::string&>();
  if (KvEntries(layer) > 0) {
    KvLayerView view;
    view.dtype = PlainType(text, where);
    return view;
  }
  if (text == "none") return std::monostate();
  const float* nowhere = nullptr;
  if (text == "state" && StateEntries(layer) + TailEntries(layer) > 0)
    return StateView{{nowhere, StateEntries(layer)}, {nowhere, TailEntries(layer)}};
  throw Fail(ErrorKind::kCorruptFile, "{}: a layer's memory kind differs from the model's", where);
}

std::string HeaderText(const StoredHeader& header) {
  const KvSegment& s = header.segment;
  Json layers = Json::array();
  for (const LayerMemory& memory : s.layers) layers.push_back(LayerText(memory));
  return Json{{"spec", Hex(s.id.spec)},
              {"weights", Hex(s.id.weights)},
              {"computed", Hex(s.id.computed)},
              {"adapter", Hex(s.id.variant.adapter)},
              {"rope_length", s.id.variant.rope.length},
              {"raw_keys", s.key_form == KeyForm::kRaw},
              {"first", s.first},
              {"before", Hex(header.before)},
              {"tokens", header.tokens},
              {"layers", layers}}
      .dump();
}

// Where a compact segment's memory begins.
const std::byte* PayloadOf(const KvSegment& segment) {
  for (const LayerMemory& memory : segment.layers) {
    if (const auto* view = std::get_if<KvLayerView>(&memory)) return view->k;
    if (const auto* state = std::get_if<StateView>(&memory))
      return reinterpret_cast<const std::byte*>(state->state.empty() ? state->tail.data()
                                                                     : state->state.data());
  }
  return nullptr;
}

bool SameProducer(const KvIdentity& a, const KvIdentity& b) {
  return a.spec == b.spec && a.weights == b.weights && a.computed == b.computed;
}

}  // namespace

uint64_t TokensDigest(std::span<const TokenId> tokens) { return Digest(std::as_bytes(tokens)); }

StoredHeader ReadStoredHeader(std::span<const std::byte> file, const ModelSpec& spec,
                              const std::string& where) {
  Preamble preamble;
  if (file.size() < sizeof preamble || std::memcmp(file.data(), kMagic, sizeof kMagic) != 0)
    throw Fail(ErrorKind::kCorruptFile, "{}: not a prefix cache file", where);
  std::memcpy(&preamble, file.data(), sizeof preamble);
  const auto rest = file.subspan(sizeof preamble);
  if (preamble.header_bytes > rest.size() ||
      Digest(rest.first(preamble.header_bytes)) != preamble.header_digest)
    throw Fail(ErrorKind::kCorruptFile, "{}: its header is damaged", where);
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), preamble.header_bytes);
  const Json json = ParseJson(text, where);
  JsonReader reader(json, where);

  StoredHeader header;
  header.payload_digest = preamble.payload_digest;
  header.payload_at = PayloadAt(preamble.header_bytes);
  KvSegment& segment = header.segment;
  segment.id = {ReadHex(reader, "spec"), ReadHex(reader, "weights"), ReadHex(reader, "computed")};
  segment.id.variant = {{int(reader.Int("rope_length"))}, ReadHex(reader, "adapter")};
  segment.key_form = reader.Bool("raw_keys") ? KeyForm::kRaw : KeyForm::kRotated;
  segment.first = int(reader.Int("first", 0, INT32_MAX));
  header.before = ReadHex(reader, "before");
  header.tokens = ReadTokens(reader.Value("tokens"), where);
  const Json& layers = reader.Value("layers");
  reader.Done();
  if (segment.id.spec != SpecDigest(spec)) return header;

  if (!layers.is_array() || layers.size() != spec.layers.size() ||
      header.tokens.size() > size_t(spec.max_context) ||
      segment.first > spec.max_context - int(header.tokens.size()))
    throw Fail(ErrorKind::kCorruptFile, "{}: it does not match its model", where);
  segment.count = int(header.tokens.size());
  for (size_t i = 0; i < layers.size(); ++i)
    segment.layers.push_back(ReadLayer(layers[i], spec.layers[i], where));
  if (header.payload_at > file.size() || CompactBytes(segment, spec) != file.size() - header.payload_at)
    throw Fail(ErrorKind::kCorruptFile, "{}: {} bytes, which does not match its header", where, file.size());
  return header;
}

PrefixStore::PrefixStore(fs::path folder, const ModelSpec& spec, const KvIdentity& id, size_t limit)
    : folder_(std::move(folder)), spec_(spec), id_(id), limit_(limit) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (!fs::is_directory(folder_))
    throw Fail(ErrorKind::kDevice, "{}: cannot create the prefix cache folder: {}", folder_.string(),
               error ? error.message() : "the name is taken by something that is not a folder");
}

std::vector<PrefixStore::Entry> PrefixStore::Scan() {
  struct Found {
    StoredHeader header;
    fs::path file;
  };
  std::vector<Found> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != kExtension) continue;
    try {
      const auto file = MappedFile::Open(entry.path());
      StoredHeader header = ReadStoredHeader(file->bytes(), spec_, entry.path().string());
      if (SameProducer(header.segment.id, id_)) found.push_back({std::move(header), entry.path()});
    } catch (const Error& e) {
      warnings_.push_back(std::string(e.what()) + ": ignored");
    }
  }
  std::ranges::sort(found, {}, [](const Found& f) { return std::pair(f.header.segment.first, f.file); });

  std::vector<Entry> entries;
  std::map<std::pair<Variant, uint64_t>, std::vector<TokenId>> known;  // by variant and digest
  for (Found& f : found) {
    const KvSegment& segment = f.header.segment;
    const Variant& variant = segment.id.variant;
    std::vector<TokenId> tokens;
    if (segment.first > 0) {
      const auto before = known.find({variant, f.header.before});
      if (before == known.end() || int(before->second.size()) != segment.first) {
        fs::remove(f.file, error);
        continue;
      }
      tokens = before->second;
    }
    tokens.insert(tokens.end(), f.header.tokens.begin(), f.header.tokens.end());
    known[{variant, TokensDigest(tokens)}] = tokens;
    entries.push_back({std::move(tokens), segment.first, variant,
                       std::make_shared<const StoredRun>(StoredRun{std::move(f.file)})});
  }
  return entries;
}

std::shared_ptr<const StoredRun> PrefixStore::Write(std::span<const TokenId> tokens, int first,
                                                    const KvSegment& segment) {
  const auto own = tokens.subspan(size_t(first));
  StoredHeader header{segment, TokensDigest(tokens.first(size_t(first))), {own.begin(), own.end()}, 0, 0};
  header.segment.id.computed = id_.computed;
  const std::string text = HeaderText(header);
  const size_t at = PayloadAt(text.size());
  const std::span payload(PayloadOf(segment), CompactBytes(segment, spec_));
  const Preamble preamble = [&] {
    Preamble p{{}, text.size(), Digest(text), Digest(payload)};
    std::memcpy(p.magic, kMagic, sizeof kMagic);
    return p;
  }();
  std::vector<std::byte> file(at + payload.size());
  std::memcpy(file.data(), &preamble, sizeof preamble);
  std::memcpy(file.data() + sizeof preamble, text.data(), text.size());
  std::memcpy(file.data() + at, payload.data(), payload.size());

  const uint64_t name = Digest(text);
  StoredRun run{folder_ / (Hex(name) + kExtension)};
  if (file.size() > limit_) return nullptr;
  MakeRoom(file.size());
  try {
    WriteFileAtomically(run.file, file);
  } catch (const Error& e) {
    warnings_.emplace_back(e.what());
    return nullptr;
  }
  return std::make_shared<const StoredRun>(std::move(run));
}

std::optional<KvSegment> PrefixStore::Read(const StoredRun& run) {
  try {
    const auto file = MappedFile::Open(run.file);
    StoredHeader header = ReadStoredHeader(file->bytes(), spec_, run.file.string());
    if (!SameProducer(header.segment.id, id_))
      throw Fail(ErrorKind::kCorruptFile, "{}: made by another model or another device", run.file.string());
    const auto payload = file->bytes().subspan(header.payload_at);
    if (Digest(payload) != header.payload_digest)
      throw Fail(ErrorKind::kCorruptFile, "{}: its keys and values are damaged", run.file.string());
    KvSegment segment = std::move(header.segment);
    segment.owner = file;
    PlaceCompact(segment, spec_, payload.data());
    std::error_code ignored;  // if it fails, the run looks unused and is evicted earlier
    fs::last_write_time(run.file, fs::file_time_type::clock::now(), ignored);
    return segment;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kNotFound)  // deleted to make room
      warnings_.push_back(std::string(e.what()) + ": ignored");
    return std::nullopt;
  }
}

void PrefixStore::MakeRoom(size_t bytes) {
  struct File {
    fs::file_time_type used;
    size_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  size_t total = bytes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != kExtension) continue;
    const auto size = size_t(entry.file_size(error));
    if (error || !IsOurs(entry.path())) continue;  // gone meanwhile, or somebody else's
    files.push_back({entry.last_write_time(error), size, entry.path()});
    total += size;
  }
  if (total <= limit_) return;
  std::ranges::sort(files, {}, &File::used);
  for (const File& file : files) {
    if (total <= limit_) return;
    if (fs::remove(file.path, error)) total -= file.bytes;
  }
}

}  // namespace pd
