#include <gateway/audit/acknowledged_writes.hpp>

#include <boost/uuid/string_generator.hpp>
#include <boost/uuid/uuid_io.hpp>

namespace fencegate::audit {

void acknowledged_writes::add(const std::string& write_id, time_point now) {
    const entry added{now, boost::uuids::string_generator()(write_id)};
    const std::lock_guard hold(mutex_);
    entries_.push_back(added);
    while (entries_.size() > kept_max || entries_.front().at + kept_for < now)
        entries_.pop_front();
}

std::vector<std::string> acknowledged_writes::take() {
    std::deque<entry> taken;
    {
        const std::lock_guard hold(mutex_);
        taken.swap(entries_);
    }
    std::vector<std::string> out;
    out.reserve(taken.size());
    for (const entry& each : taken) {
        std::string& text = out.emplace_back(36, '-');
        boost::uuids::to_chars(each.write_id, text.data(), text.data() + text.size());
    }
    return out;
}

}  // namespace fencegate::audit
