#include <gateway/audit/event_items.hpp>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace fencegate {
namespace {

/// What lockcore's phrase is about.
const char* name_of_detail(lockcore::event_kind kind) {
    switch (kind) {
        case lockcore::event_kind::node_quarantined:
        case lockcore::event_kind::node_readmitted:
        case lockcore::event_kind::epoch_raised:
            return "node";
        default:
            return "reason";
    }
}

}  // namespace

std::vector<history_item> history_items(const lockcore::event& e) {
    boost::json::object detail;
    if (!e.detail.empty()) detail[name_of_detail(e.kind)] = e.detail;
    if (e.ttl.count() > 0) detail["ttl_ms"] = e.ttl.count();

    history_item item;
    item.at = e.at;
    item.event = lockcore::to_string(e.kind);
    if (lockcore::value_of(e.token) != 0) item.fencing_token = lockcore::value_of(e.token);
    item.by.principal = e.by.principal;
    item.by.owner = e.by.owner;
    item.by.trace_id = e.trace_id;
    if (!detail.empty()) item.detail = boost::json::serialize(detail);

    std::vector<history_item> out;
    for (const auto& resource : e.resources) {
        item.resource = resource.str();
        out.push_back(item);
    }
    if (out.empty()) out.push_back(std::move(item));
    return out;
}

}  // namespace fencegate
