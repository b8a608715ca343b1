#include <gateway/audit/denial_sampler.hpp>

#include <initializer_list>

namespace fencegate::audit {

denial_sampler::counts& denial_sampler::counts_of(const caller& source, time_point now) {
    auto* callers = source.principal.empty() ? &addresses_ : &principals_;
    caller key = source;
    if (callers->size() >= callers_max && !callers->contains(source)) {
        callers = &others_;
        key.principal.clear();
        key.address.clear();
    }
    const auto [found, added] = callers->try_emplace(key);
    if (added) {
        found->second.begun = now;
        found->second.rest.source = key;
    }
    return found->second;
}

bool denial_sampler::admit(const caller& source, time_point now) {
    counts& current = counts_of(source, now);
    if (current.stored == stored_max) {
        leave_out(source, now);
        return false;
    }
    ++current.stored;
    return true;
}

void denial_sampler::leave_out(const caller& source, time_point now) {
    left_out& rest = counts_of(source, now).rest;
    if (rest.count++ == 0) rest.from = now;
    rest.to = now;
}

void denial_sampler::end_windows(time_point now, bool all, const std::function<bool(const left_out&)>& store) {
    for (windows* callers : {&principals_, &addresses_, &others_}) {
        std::erase_if(*callers, [&](const auto& entry) {
            const counts& current = entry.second;
            // A clock that was set back ends the window too.
            const bool over = all || now < current.begun || now >= current.begun + window;
            return over && (current.rest.count == 0 || store(current.rest));
        });
    }
}

}  // namespace fencegate::audit
