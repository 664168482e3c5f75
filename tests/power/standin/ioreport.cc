#include "tests/power/standin/ioreport.h"

#include <cstring>
#include <map>
#include <memory>

namespace pd::test {

IoReportStandIn& StandIn() {
  static IoReportStandIn state;
  return state;
}

namespace {

// An object of Core Foundation, of any kind; `type` says which.
struct Object {
  enum Type : unsigned long { kString = 1, kArray, kDictionary, kData, kSubscription };
  explicit Object(Type t) : type(t) { ++StandIn().objects; }
  ~Object() { --StandIn().objects; }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Type type;
  int references = 1;
  std::string text;                            // of a string
  std::vector<uint8_t> bytes;                  // of data
  std::vector<Object*> items;                  // of an array
  std::map<std::string, Object*> fields = {};  // of a dictionary
};

Object* As(const void* object, Object::Type type) {
  auto* found = static_cast<Object*>(const_cast<void*>(object));
  if (!found || found->type != type || found->references <= 0)
    std::abort();  // a call that Apple's would crash on
  return found;
}

void Release(Object* object) {
  if (--object->references > 0) return;
  for (Object* item : object->items) Release(item);
  for (const auto& [key, value] : object->fields) Release(value);
  delete object;
}

Object* Retain(Object* object) {
  ++object->references;
  return object;
}

Object* String(const std::string& text) {
  auto* string = new Object(Object::kString);
  string->text = text;
  return string;
}

Object* ChannelDictionary(const StandInChannel& channel, bool sample) {
  auto* dictionary = new Object(Object::kDictionary);
  dictionary->fields = {{"name", String(channel.name)}, {"unit", String(channel.unit)}};
  if (!sample) return dictionary;
  // The count is beside the element and not in it, to catch a reader of the wrong one.
  auto* count = new Object(Object::kData);
  count->bytes.resize(sizeof(channel.count));
  std::memcpy(count->bytes.data(), &channel.count, sizeof(channel.count));
  dictionary->fields["count"] = count;
  if (channel.stamp != 0) {
    auto* element = new Object(Object::kData);
    element->bytes.assign(64, 0xEE);
    std::memcpy(element->bytes.data() + 24, &channel.stamp, sizeof(channel.stamp));
    dictionary->fields["RawElements"] = element;
  }
  return dictionary;
}

// The machine's channels that `chosen` names; all of them when it is null.
Object* ChannelsDictionary(const Object* chosen, bool sample) {
  auto* array = new Object(Object::kArray);
  for (const StandInChannel& channel : StandIn().channels) {
    bool wanted = !chosen;
    if (chosen)
      for (const Object* item : chosen->items) wanted |= item->fields.at("name")->text == channel.name;
    if (wanted && (!sample || channel.in_samples)) array->items.push_back(ChannelDictionary(channel, sample));
  }
  auto* dictionary = new Object(Object::kDictionary);
  dictionary->fields["IOReportChannels"] = array;
  return dictionary;
}

}  // namespace
}  // namespace pd::test

using namespace pd::test;

extern "C" {

extern const int kCFTypeArrayCallBacks = 1;

void CFRelease(const void* object) { Release(static_cast<Object*>(const_cast<void*>(object))); }
unsigned long CFGetTypeID(const void* object) { return static_cast<const Object*>(object)->type; }
unsigned long CFArrayGetTypeID() { return Object::kArray; }
unsigned long CFDataGetTypeID() { return Object::kData; }

const void* CFStringCreateWithCString(const void*, const char* text, uint32_t encoding) {
  return encoding == 0x08000100 ? String(text) : nullptr;
}
unsigned char CFStringGetCString(const void* string, char* buffer, long size, uint32_t encoding) {
  const std::string& text = As(string, Object::kString)->text;
  if (encoding != 0x08000100 || long(text.size()) >= size) return 0;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return 1;
}

long CFArrayGetCount(const void* array) { return long(As(array, Object::kArray)->items.size()); }
const void* CFArrayGetValueAtIndex(const void* array, long index) {
  return As(array, Object::kArray)->items.at(size_t(index));
}
const void* CFArrayCreateMutable(const void*, long, const void* callbacks) {
  if (callbacks != &kCFTypeArrayCallBacks) std::abort();  // it would not retain what it holds
  return new Object(Object::kArray);
}
void CFArrayAppendValue(const void* array, const void* value) {
  As(array, Object::kArray)->items.push_back(Retain(As(value, Object::kDictionary)));
}

const void* CFDictionaryGetValue(const void* dictionary, const void* key) {
  const auto& fields = As(dictionary, Object::kDictionary)->fields;
  const auto found = fields.find(As(key, Object::kString)->text);
  return found == fields.end() ? nullptr : found->second;
}
const void* CFDictionaryCreateMutableCopy(const void*, long, const void* dictionary) {
  auto* copy = new Object(Object::kDictionary);
  for (const auto& [key, value] : As(dictionary, Object::kDictionary)->fields)
    copy->fields[key] = Retain(value);
  return copy;
}
void CFDictionarySetValue(const void* dictionary, const void* key, const void* value) {
  Object*& field = As(dictionary, Object::kDictionary)->fields[As(key, Object::kString)->text];
  if (field) Release(field);
  field = Retain(As(value, Object::kArray));
}

const uint8_t* CFDataGetBytePtr(const void* data) { return As(data, Object::kData)->bytes.data(); }
long CFDataGetLength(const void* data) { return long(As(data, Object::kData)->bytes.size()); }

const void* IOReportCopyChannelsInGroup(const void* group, const void*, uint64_t, uint64_t, uint64_t) {
  return As(group, Object::kString)->text == "Energy Model" ? ChannelsDictionary(nullptr, false) : nullptr;
}
const void* IOReportCreateSubscription(void*, const void* channels, const void** subscribed, uint64_t,
                                       const void*) {
  As(channels, Object::kDictionary);
  *subscribed = nullptr;
  return StandIn().subscribes ? new Object(Object::kSubscription) : nullptr;
}
const void* IOReportCreateSamples(const void* subscription, const void* channels, const void*) {
  As(subscription, Object::kSubscription);
  const Object* chosen = As(channels, Object::kDictionary)->fields.at("IOReportChannels");
  return StandIn().samples ? ChannelsDictionary(chosen, true) : nullptr;
}
const void* IOReportChannelGetChannelName(const void* channel) {
  return As(channel, Object::kDictionary)->fields.at("name");
}
const void* IOReportChannelGetUnitLabel(const void* channel) {
  return As(channel, Object::kDictionary)->fields.at("unit");
}
int64_t IOReportSimpleGetIntegerValue(const void* channel, int* error) {
  if (error) *error = 0;
  int64_t count = 0;
  std::memcpy(&count, As(channel, Object::kDictionary)->fields.at("count")->bytes.data(), sizeof(count));
  return count;
}

uint64_t mach_absolute_time() { return StandIn().ticks; }
int mach_timebase_info(uint32_t* base) {
  base[0] = 125;
  base[1] = 3;
  return 0;
}
}
