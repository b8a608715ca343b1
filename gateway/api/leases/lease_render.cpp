#include <gateway/api/leases/lease_render.hpp>

#include <gateway/http/codec/json_io.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <algorithm>
#include <optional>

namespace fencegate::api {
namespace {

void write_resources(http::object_writer& out, std::string& text, const std::vector<lockcore::resource_name>& names) {
    out.key("resources");
    text += '[';
    for (const auto& name : names) {
        if (&name != names.data()) text += ',';
        http::append_json_string(text, name.str());
    }
    text += ']';
}

void write_identity(http::object_writer& out, std::string& text, const lockcore::lease_claims& claims,
                    std::string_view lease_id) {
    out.text("lease_id", lease_id);
    if (claims.resources.size() == 1) {
        out.text("resource", claims.resources.front().str());
    } else {
        write_resources(out, text, claims.resources);
    }
    out.number("fencing_token", lockcore::value_of(claims.token));
}

/// Further members of an answer.
struct lease_extras {
    std::optional<lockcore::milliseconds> max_hold{};
    std::optional<lockcore::milliseconds> hold_left{};
    std::string_view reason{};  ///< Empty: none.
};

std::string render_lease_object(const lockcore::lease& l, const lease_times& times, const lease_extras& extras) {
    std::string text;
    text.reserve(384 + l.id.size());
    http::object_writer out(text);
    write_identity(out, text, l.claims, l.id);
    out.text_or_null("owner", l.claims.holder.owner).number("hold_count", l.hold_count);
    out.number("ttl_ms", l.ttl.count()).number("validity_ms", times.left.count());
    out.number("served_ms", times.served.count());
    out.text("expires_at", runtime::to_rfc3339(l.expires_at)).number("renewals_left", l.renewals_left);
    out.key("quorum");
    http::object_writer(text).number("granted", l.nodes_granted).number("nodes", l.nodes).end();
    if (extras.max_hold) out.number("max_hold_ms", extras.max_hold->count());
    if (extras.hold_left) out.number("hold_left_ms", extras.hold_left->count());
    if (!extras.reason.empty()) out.text("reason", extras.reason);
    out.end();
    return text;
}

std::string render_event(std::string_view name, std::string_view data) {
    std::string text = "event: ";
    text += name;
    text += "\ndata: ";
    text += data;
    text += "\n\n";
    return text;
}

}  // namespace

std::string render_lease(const lockcore::lease& l, const lease_times& times) {
    return render_lease_object(l, times, {});
}

http::response lease_response(lockcore::lease l, unsigned status, std::optional<std::chrono::milliseconds> max_hold) {
    http::response out = http::json_response({}, status);
    http::expiring_text& body = out.expiring_body.emplace();
    body.valid_until = l.valid_until;
    body.render = [l = std::move(l), max_hold](std::chrono::milliseconds left, std::chrono::milliseconds served) {
        lease_extras extras;
        extras.max_hold = max_hold;
        return render_lease_object(l, {left, served}, extras);
    };
    return out;
}

std::string render_lease_event(std::string_view name, const lockcore::kept_lease& kept, const lease_times& times,
                               std::chrono::milliseconds max_hold, std::string_view reason) {
    const auto left = std::chrono::floor<lockcore::milliseconds>(kept.hold_until - lockcore::boot_clock::now());
    lease_extras extras;
    extras.max_hold = max_hold;
    extras.hold_left = std::clamp(left, lockcore::milliseconds{0}, max_hold);
    extras.reason = reason;
    return render_event(name, render_lease_object(kept.current, times, extras));
}

std::string render_watch_event(std::string_view name, const lockcore::lease& watched, const lease_times& times,
                               std::string_view reason) {
    lease_extras extras;
    extras.reason = reason;
    return render_event(name, render_lease_object(watched, times, extras));
}

std::string render_live_lease(const lockcore::live_lease& l, std::size_t nodes) {
    std::string text;
    http::object_writer item(text);
    item.text("resource", l.claims.resources.front().str());
    if (l.claims.resources.size() > 1) write_resources(item, text, l.claims.resources);
    item.number("fencing_token", lockcore::value_of(l.claims.token));
    item.text_or_null("owner", l.claims.holder.owner).text_or_null("principal", l.claims.holder.principal);
    item.number("hold_count", l.hold_count).number("renewals", l.renewals);
    item.text("granted_at", runtime::to_rfc3339(l.claims.granted_at)).number("remaining_ms", l.remaining.count());
    item.key("quorum");
    http::object_writer(text).number("granted", l.nodes_granted).number("nodes", nodes).end();
    item.end();
    return text;
}

std::string render_live_leases(const lockcore::lease_page& page, const lockcore::waiting_overview& waiting,
                               std::size_t nodes) {
    std::string text;
    text.reserve(64 + 320 * page.leases.size());
    http::object_writer out(text);
    out.key("items");
    text += '[';
    for (const lockcore::live_lease& l : page.leases) {
        if (&l != page.leases.data()) text += ',';
        text += render_live_lease(l, nodes);
    }
    text += ']';
    out.text_or_null("next_cursor", page.next).number("waiters", waiting.waiters).key("waiting");
    text += '[';
    for (const lockcore::waiting_count& entry : waiting.resources) {
        if (&entry != waiting.resources.data()) text += ',';
        http::object_writer(text).text("resource", entry.resource).number("waiters", entry.waiters).end();
    }
    text += ']';
    out.end();
    return text;
}

std::string render_remaining_holds(const lockcore::lease_claims& claims, std::string_view lease_id,
                                   std::uint32_t holds_left, seal_result seal) {
    std::string text;
    http::object_writer out(text);
    write_identity(out, text, claims, lease_id);
    out.number("hold_count", holds_left);
    if (seal == seal_result::not_sealed) out.boolean("sealed", false);
    out.end();
    return text;
}

std::string location_of(std::string_view lease_id) {
    return "/v1/leases/" + runtime::percent_encode(lease_id);
}

}  // namespace fencegate::api
