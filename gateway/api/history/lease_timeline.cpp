#include <gateway/api/history/lease_timeline.hpp>

#include <gateway/api/history/history_render.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>

#include <utility>

namespace fencegate::api {
namespace {

using std::chrono::system_clock;

std::optional<std::chrono::milliseconds> ttl_of(const history_item& item) {
    boost::system::error_code fault;
    const auto detail = boost::json::parse(item.detail.empty() ? "null" : item.detail, fault);
    const auto* object = fault ? nullptr : detail.if_object();
    const auto* ttl = object == nullptr ? nullptr : object->if_contains("ttl_ms");
    if (ttl == nullptr || !ttl->is_int64()) return std::nullopt;
    return std::chrono::milliseconds(ttl->get_int64());
}

}  // namespace

void lease_timeline::add(history_item item) {
    ++events_;
    const auto& event = item.event;
    if (event == "lease_granted" || event == "lease_renewed") {
        if (event == "lease_granted" && !granted_) granted_ = item;
        if (event == "lease_renewed" && renewals_++ == 0) renewed_ = item;
        if (const auto ttl = ttl_of(item)) runs_until_ = item.at + *ttl;
    } else if (event == "lease_released" || event == "lease_revoked" || event == "lease_expired") {
        ended_ = item;
    } else if (event == "write_applied") {
        ++applied_;
    } else if (event == "write_rejected") {
        ++rejected_;
    } else if (event == "write_failed") {
        ++failed_;
    }
    if (shown_.size() < shown_max) shown_.push_back(std::move(item));
}

std::string_view lease_timeline::describe_end(bool live, bool whole) const {
    if (live) return "live";
    if (ended_) {
        return ended_->event == "lease_released"  ? "released"
               : ended_->event == "lease_revoked" ? "revoked"
                                                  : "expired";
    }
    // The ttl is not over: the event that ended it has not reached the history yet, or the nodes did not answer.
    if (!(granted_ || renewed_) || !whole || (runs_until_ && *runs_until_ > system_clock::now())) return "unknown";
    return "ran_out";
}

std::string lease_timeline::render(std::string_view resource, std::uint64_t token, bool live, bool whole) const {
    std::string text;
    http::object_writer out(text);
    out.text("resource", resource).number("fencing_token", token);
    if (const auto& held = granted_ ? granted_ : renewed_) {
        out.key("held_by");
        const actor& initiator = held->initiator;
        http::object_writer(text)
            .text_or_null("principal", initiator.principal)
            .text_or_null("owner", initiator.owner)
            .text_or_null("trace_id", initiator.trace_id)
            .end();
    } else {
        out.null("held_by");
    }
    if (granted_) {
        out.text("granted_at", runtime::to_rfc3339(granted_->at));
    } else {
        out.null("granted_at");
    }
    const std::string_view end_state = describe_end(live, whole);
    out.text("end", end_state);
    const auto ended_at = ended_ ? std::optional(ended_->at) : end_state == "ran_out" ? runs_until_ : std::nullopt;
    if (ended_at) {
        out.text("ended_at", runtime::to_rfc3339(*ended_at));
    } else {
        out.null("ended_at");
    }
    out.raw("end_detail", ended_ && !ended_->detail.empty() ? ended_->detail : "null");
    out.number("renewals", renewals_).number("writes_applied", applied_);
    out.number("writes_rejected", rejected_).number("writes_failed", failed_);
    out.boolean("complete", whole && events_ == static_cast<std::int64_t>(shown_.size())).key("events");
    append_history_items(text, shown_);
    out.end();
    return text;
}

}  // namespace fencegate::api
