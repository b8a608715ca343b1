#include <gateway/audit/acknowledged_writes.hpp>

#include <boost/uuid/string_generator.hpp>
#include <boost/uuid/uuid_io.hpp>

#include <set>

namespace fencegate::audit {

void acknowledged_writes::add(const std::string& write_id, time_point now) {
    const entry added{now, boost::uuids::string_generator()(write_id)};
    const std::lock_guard hold(mutex_);
    entries_.push_back(added);
    while (entries_.size() > kept_max || entries_.front().at + kept_for < now)
        entries_.pop_front();
}

std::vector<std::string> acknowledged_writes::list() const {
    std::deque<entry> copied;
    {
        const std::lock_guard hold(mutex_);
        copied = entries_;
    }
    std::vector<std::string> out;
    out.reserve(copied.size());
    for (const entry& each : copied) {
        std::string& text = out.emplace_back(36, '-');
        boost::uuids::to_chars(each.write_id, text.data(), text.data() + text.size());
    }
    return out;
}

void acknowledged_writes::forget(const std::vector<std::string>& write_ids) {
    const boost::uuids::string_generator parse;
    std::set<boost::uuids::uuid> forgotten;
    for (const std::string& id : write_ids)
        forgotten.insert(parse(id));
    const std::lock_guard hold(mutex_);
    std::erase_if(entries_, [&](const entry& each) { return forgotten.contains(each.write_id); });
}

}  // namespace fencegate::audit
