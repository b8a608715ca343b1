#include <gateway/audit/event_items.hpp>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <string>

namespace fencegate::audit {
namespace {

/// Returns the member of the history's detail that holds the event's text.
const char* detail_member_of(lockcore::event_kind kind) {
    switch (kind) {
        case lockcore::event_kind::node_quarantined:
        case lockcore::event_kind::node_readmitted:
        case lockcore::event_kind::epoch_raised:
            return "node";
        default:
            return "reason";
    }
}

std::string detail_of(const lockcore::event& e) {
    const auto ttl = e.ttl.count();
    if (e.detail.empty()) return ttl > 0 ? "{\"ttl_ms\":" + std::to_string(ttl) + "}" : std::string();
    boost::json::object detail;
    detail[detail_member_of(e.kind)] = e.detail;
    if (ttl > 0) detail["ttl_ms"] = ttl;
    return boost::json::serialize(detail);
}

}  // namespace

std::vector<history_item> history_items(const lockcore::event& e) {
    history_item item;
    item.at = e.at;
    item.event = lockcore::to_string(e.kind);
    if (lockcore::value_of(e.token) != 0) item.fencing_token = lockcore::value_of(e.token);
    item.initiator.principal = e.actor.principal;
    item.initiator.owner = e.actor.owner;
    item.initiator.trace_id = e.trace_id;
    item.detail = detail_of(e);

    std::vector<history_item> out;
    out.reserve(std::max<std::size_t>(e.resources.size(), 1));
    for (std::size_t i = 1; i < e.resources.size(); ++i) {
        out.push_back(item);
        out.back().resource = e.resources[i - 1].str();
    }
    if (!e.resources.empty()) item.resource = e.resources.back().str();
    out.push_back(std::move(item));
    return out;
}

}  // namespace fencegate::audit
