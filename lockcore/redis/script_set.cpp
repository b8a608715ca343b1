#include <redis/script_set.hpp>

#include <lockcore/encoding.hpp>
#include <lockcore/redis/scripts.hpp>
#include <redis/resp.hpp>

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <stdexcept>

namespace lockcore::redis {
namespace {

/// Removes the lines that have only a comment, so that less is sent to the nodes.
std::string remove_comment_lines(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
        const std::string_view line = text.substr(0, size);
        text.remove_prefix(size);
        const std::size_t first = line.find_first_not_of(' ');
        if (first == std::string_view::npos || !line.substr(first).starts_with("--")) out += line;
    }
    return out;
}

/// Makes a script of these files.
script make_script(std::initializer_list<std::string_view> names) {
    std::string text;
    for (const std::string_view name : names)
        text += remove_comment_lines(scripts::file(name));
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1)
        throw std::runtime_error("SHA-1 is not available");
    return {std::move(text), to_hex(std::as_bytes(std::span(digest).first(size)))};
}

script make_node_script(std::string_view name) {
    return make_script({"command_marks.lua", name});
}

// Of each command about leases there are two scripts: for leases without shared resources, which are not to cost more
// than they have to, and for a call with any (shared.lua).

/// Makes the scripts of a command about the holds of leases. They have no effect on a node whose command marks have
/// changed since the last check of its settings (unchanged.lua).
std::array<script, script_variants> make_holds_scripts(std::string_view name) {
    return {make_script({"command_marks.lua", "unchanged.lua", "call.lua", "lease.lua", "groups.lua", "holds.lua",
                         "merge.lua", name}),
            make_script({"command_marks.lua", "unchanged.lua", "call.lua", "lease.lua", "holds.lua", "shared_index.lua",
                         "shared.lua", "groups.lua", "merge.lua", name})};
}

std::array<script, script_variants> make_acquire_scripts() {
    return {make_script({"command_marks.lua", "unchanged.lua", "call.lua", "lease.lua", "counters.lua",
                         "acquire_free.lua", "holds.lua", "caller.lua", "acquire.lua", "shared_index.lua", "shared.lua",
                         "shared_caller.lua", "acquire_shared.lua"}),
            make_script({"command_marks.lua", "unchanged.lua", "call.lua", "skip.lua", "lease.lua", "counters.lua",
                         "acquire_free.lua", "holds.lua", "caller.lua", "acquire.lua", "skip_end.lua",
                         "shared_index.lua", "shared.lua", "shared_caller.lua", "acquire_shared.lua"})};
}

std::array<script, script_variants> make_confirm_scripts() {
    return {make_script({"command_marks.lua", "unchanged.lua", "call.lua", "lease.lua", "groups.lua", "counters.lua",
                         "confirm.lua"}),
            make_script({"command_marks.lua", "unchanged.lua", "call.lua", "lease.lua", "shared_index.lua",
                         "shared.lua", "groups.lua", "counters.lua", "confirm.lua"})};
}

std::array<script, script_variants> make_top_up_scripts() {
    return {make_script({"command_marks.lua", "unchanged.lua", "call.lua", "lease.lua", "groups.lua", "counters.lua",
                         "holds.lua", "merge.lua", "top_up.lua"}),
            make_script({"command_marks.lua", "unchanged.lua", "call.lua", "lease.lua", "holds.lua", "shared_index.lua",
                         "shared.lua", "groups.lua", "counters.lua", "merge.lua", "top_up.lua"})};
}

std::array<script, script_variants> make_release_scripts() {
    return {make_script({"call.lua", "release_single.lua", "lease.lua", "groups.lua", "holds.lua", "merge.lua",
                         "delete.lua", "release.lua"}),
            make_script({"call.lua", "skip.lua", "release_single.lua", "skip_end.lua", "lease.lua", "holds.lua",
                         "shared_index.lua", "shared.lua", "groups.lua", "merge.lua", "delete.lua",
                         "shared_release.lua", "release.lua"})};
}

/// A script that is the same for shared leases.
std::array<script, script_variants> make_both(std::initializer_list<std::string_view> names) {
    return {make_script(names), make_script(names)};
}

void append_arguments(resp_command& out, command_kind kind, const lease_call& call, fencing_token token) {
    if (kind == command_kind::list) {
        out.arg(call.cursor).arg(call.pattern);
        return;
    }
    if (kind == command_kind::look) {
        out.arg(call.tail);
        return;
    }
    out.arg(std::uint64_t{call.resources.size()});
    out.arg(call.attempt_id.str());
    const auto ttl = static_cast<std::uint64_t>(call.ttl.count());
    const auto hold_max = static_cast<std::uint64_t>(call.hold_max.count());
    switch (kind) {
        case command_kind::acquire:
            out.arg(ttl)
                .arg(value_of(call.hint))
                .arg(call.previous ? call.previous->str() : std::string_view{})
                .arg(call.previous_hold.str())
                .arg(call.tail)
                .arg(call.wake_mark);
            break;
        case command_kind::confirm:
            out.arg(ttl).arg(value_of(token));
            break;
        case command_kind::renew:
            out.arg(ttl)
                .arg(value_of(token))
                .arg(hold_max)
                .arg(std::uint64_t{call.renewals_max})
                .arg(call.hold.str())
                .arg("-");
            break;
        case command_kind::hold:
            out.arg(ttl)
                .arg(value_of(token))
                .arg(hold_max)
                .arg("")
                .arg(call.hold.str())
                .arg(call.key.empty() ? "-" : call.key);
            break;
        case command_kind::top_up:
            out.arg(ttl).arg(value_of(token)).arg(call.tail).arg(call.hold.str()).arg(call.seen);
            break;
        case command_kind::inspect:
            out.arg(value_of(token))
                .arg(call.hold.str())
                .arg(call.watches ? std::string_view(call.wake_mark) : std::string_view{});
            break;
        case command_kind::close:
            out.arg(call.hold.str()).arg(call.close_mark).arg(call.lift ? "0" : "1");
            break;
        case command_kind::release:
        case command_kind::undo:
            out.arg(call.wake_mark).arg(static_cast<std::uint64_t>(call.scope)).arg(call.hold.str());
            break;
        case command_kind::look:
        case command_kind::list:
            break;
    }
}

}  // namespace

const script& script_for(command_kind kind, bool shared) {
    // In the order of command_kind.
    static const std::array<std::array<script, script_variants>, command_kinds> all = {
        make_holds_scripts("renew.lua"),
        make_holds_scripts("renew.lua"),
        make_top_up_scripts(),
        make_holds_scripts("close.lua"),
        make_release_scripts(),
        make_acquire_scripts(),
        make_confirm_scripts(),
        make_holds_scripts("inspect.lua"),
        make_both({"call.lua", "lease.lua", "look.lua", "holds.lua", "caller.lua", "shared_index.lua", "shared.lua",
                   "shared_caller.lua", "look_shared.lua"}),
        make_both({"list.lua"}),
        make_release_scripts()};
    return all[static_cast<std::size_t>(kind)][shared ? 1 : 0];
}

const script& identify_script() {
    static const script identify = make_node_script("identify.lua");
    return identify;
}

const script& readmit_script() {
    static const script readmit = make_node_script("readmit.lua");
    return readmit;
}

const script& announce_script() {
    static const script announce = make_node_script("announce.lua");
    return announce;
}

const script& mark_script() {
    static const script mark = make_node_script("mark.lua");
    return mark;
}

const script& read_leases_script() {
    static const script read_leases =
        make_script({"command_marks.lua", "unchanged.lua", "call.lua", "shared_index.lua", "read_leases.lua"});
    return read_leases;
}

const script& install_script() {
    static const script install =
        make_script({"command_marks.lua", "call.lua", "lease.lua", "shared_index.lua", "shared.lua", "install.lua"});
    return install;
}

std::string format_batch(command_kind kind, std::span<const batch_item> items, std::string_view run_id,
                         bool with_source) {
    const bool has_counters =
        kind == command_kind::acquire || kind == command_kind::confirm || kind == command_kind::top_up;
    std::uint64_t keys = 1;
    bool has_shared = false;
    for (const batch_item& item : items) {
        keys += item.target->call().resources.size() * (has_counters ? 2 : 1);
        has_shared = has_shared || item.target->call().shared > 0;
    }

    const script& s = script_for(kind, has_shared);
    resp_command out;
    if (with_source) {
        out.arg("EVAL").arg(s.text);
    } else {
        out.arg("EVALSHA").arg(s.sha1);
    }
    out.arg(keys).arg("fg:node");
    for (const batch_item& item : items) {
        const lease_call& call = item.target->call();
        const std::string suffix = call.shared > 0 ? '\t' + std::string(call.attempt_id.str()) : std::string();
        for (std::size_t i = 0; i < call.resources.size(); ++i) {
            const std::string& name = call.resources[i].str();
            if (i + call.shared < call.resources.size()) {
                out.arg("fg:lease:", name);
            } else {
                out.arg("fg:lease:", name + suffix);
            }
        }
        if (!has_counters) continue;
        for (const resource_name& r : item.target->call().resources)
            out.arg("fg:token:", std::uint64_t{r.bucket()});
    }
    out.arg(run_id);
    for (const batch_item& item : items)
        append_arguments(out, kind, item.target->call(), item.token);
    return out.finish();
}

}  // namespace lockcore::redis
