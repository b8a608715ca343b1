#include <proto/lease_id.hpp>

#include <lockcore/encoding.hpp>
#include <proto/lease_record.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

namespace lockcore {
namespace {

/// The first line of the claims. A database that requires proofs compares it too.
constexpr std::string_view lease_id_format = "1";

/// Decodes a MAC. Out: empty for a text of another length, and for a second text of the same bytes, which unused bits
/// at its end would allow.
std::optional<authenticator::mac> decode_mac(std::string_view text) {
    const auto bytes = from_base64url(text);
    authenticator::mac out{};
    if (!bytes || bytes->size() != out.size()) return std::nullopt;
    std::ranges::copy(std::as_bytes(std::span(*bytes)), out.begin());
    std::string again;
    append_base64url(again, out);
    return again == text ? std::optional(out) : std::nullopt;
}

std::string_view next_line(std::string_view& rest) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    return line;
}

template <class Number>
bool parse_number(std::string_view text, Number& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc{} && end == text.data() + text.size();
}

failure not_authentic(const char* why = "The lease_id was not made by this cluster, or it was changed.") {
    failure f;
    f.code = errc::lease_not_authentic;
    f.detail = why;
    return f;
}

failure malformed() {
    return not_authentic(
        "This text does not have the form of a lease_id. Send the lease_id of the answer that granted the lease; null, "
        "for example, means that the answer it was read from granted none.");
}

failure other_cell(cell_id named, cell_id own) {
    failure f;
    f.code = errc::other_cell;
    f.detail = describe_other_cell("The lease_id", named, own);
    f.cell = named;
    return f;
}

}  // namespace

std::string sign_lease_id(const lease_claims& claims, cell_id cell, const authenticator& mac) {
    std::string text(lease_id_format);
    text += '\n';
    text += claims.attempt_id.str();
    text += '\n';
    text += std::to_string(value_of(claims.token));
    text += '\n';
    text += std::to_string(std::chrono::duration_cast<milliseconds>(claims.granted_at.time_since_epoch()).count());
    text += '\n';
    append_names(text, claims.resources, claims.shared);
    text += '\n';
    text += claims.hold.str();
    if (claims.may_be_shared) text += '+';
    text += '\n';
    text += claims.holder.principal;
    text += '\n';
    text += claims.holder.owner;

    std::string id = mark_cell(cell, {});
    id.reserve(text.size() * 4 / 3 + 56);
    append_base64url(id, std::as_bytes(std::span(text)));
    const auto signature = mac.sign(id);
    id += '.';
    append_base64url(id, signature);
    return id;
}

result<lease_claims> verify_lease_id(std::string_view lease_id, cell_id cell, const authenticator& mac) {
    const std::size_t dot = lease_id.find('.');
    if (lease_id.size() > lease_id_max_bytes || dot == std::string_view::npos) return malformed();
    const auto marked = split_cell(lease_id.substr(0, dot));
    if (!marked) return not_authentic();
    // Cells may have different keys, so the cell is compared first: it only says who may answer.
    if (marked->cell != cell) return other_cell(marked->cell, cell);
    const auto signature = decode_mac(lease_id.substr(dot + 1));
    if (!signature || !mac.verify(lease_id.substr(0, dot), *signature)) return not_authentic();

    const auto text = from_base64url(marked->name);
    if (!text) return not_authentic();
    std::string_view rest = *text;
    lease_claims claims;
    if (next_line(rest) != lease_id_format) return malformed();
    auto attempt = nonce::parse(next_line(rest));
    std::uint64_t token = 0;
    std::int64_t granted_ms = 0;
    if (!attempt || !parse_number(next_line(rest), token) || !parse_number(next_line(rest), granted_ms))
        return not_authentic();
    claims.attempt_id = *attempt;
    claims.token = fencing_token{token};
    const auto granted_at = to_wall_time(granted_ms);
    if (!granted_at) return not_authentic();
    claims.granted_at = *granted_at;
    if (!parse_names(next_line(rest), claims.resources, claims.shared)) return not_authentic();
    std::string_view hold = next_line(rest);
    claims.may_be_shared = hold.ends_with('+');
    if (claims.may_be_shared) hold.remove_suffix(1);
    const auto id = hold_id::parse(hold);
    if ((claims.resources.empty() && claims.shared.empty()) || !id) return not_authentic();
    claims.hold = *id;
    claims.holder.principal = next_line(rest);
    claims.holder.owner = rest;
    return claims;
}

}  // namespace lockcore
