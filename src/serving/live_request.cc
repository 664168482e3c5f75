#include "serving/live_request.h"

namespace pd {
namespace {

template <class Key>
void Set(std::set<Key>& set, const Key& key, bool member) {
  if (member) {
    set.insert(key);
  } else {
    set.erase(key);
  }
}

}  // namespace

void Agenda::File(LiveRequest& live, const Work& work, LaneId decode_lane) {
  const Work& old = live.filed;
  if (work == old) return;
  const auto set_all = [&](const Work& w, bool member) {
    if (w.open) Set(open, live.id, member);
    if (w.import) Set(import, live.id, member);
    if (w.export_tokens) Set(export_tokens, live.id, member);
    if (w.row) Set(rows, {live.last_step, live.id}, member);
    if (w.close) Set(on_lane[size_t(decode_lane)].cleanup, live.id, member);
    if (w.end_session) Set(on_lane[size_t(*w.end_session)].cleanup, live.id, member);
    if (w.chunk) {
      Set(on_lane[size_t(*w.chunk)].chunk, live.id, member);
      Set(on_lane[size_t(*w.chunk)].by_rest, {w.prompt_left, live.id}, member);
    }
    if (w.prompt_left > 0) Set(unread, live.id, member);
    if (w.may_use_cache) Set(may_use_cache, live.id, member);
  };
  set_all(old, false);
  set_all(work, true);
  live.filed = work;
}

}  // namespace pd
