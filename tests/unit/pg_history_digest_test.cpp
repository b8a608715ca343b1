// gateway/pg/history/history_digest: the text of a digest, its line, and its signature.
#include <gateway/config/secrets.hpp>
#include <gateway/pg/history/history_digest.hpp>

#include "digest_key.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fencegate::pg {
namespace {

digest_entry make_entry() {
    digest_entry out;
    out.number = 7;
    out.previous = sha256_hex("before");
    out.made_at = "2026-11-30T22:00:00.000Z";
    out.gateway = R"(a "host":8080)";
    out.key = "0123456789abcdef";
    out.history = {.after = 10, .to = 1'000, .parts = {{"20261123", {3, "ab", "ef"}}, {"20261130", {4, "cd", "01"}}}};
    out.changes = {.after = 0, .to = std::int64_t{1} << 60, .parts = {}};
    return out;
}

std::vector<pkey_handle> key_of(pkey_handle key) {
    std::vector<pkey_handle> out;
    out.push_back(std::move(key));
    return out;
}

TEST(history_digest, entry_is_read_as_it_was_written) {
    const std::string text = render_digest(make_entry());
    const auto read = parse_digest(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(render_digest(*read), text);
    EXPECT_EQ(read->history.parts, make_entry().history.parts);
    EXPECT_EQ(read->changes.to, std::int64_t{1} << 60);
    for (const auto* other : {"", "{}", "[]", "{", R"({"number":"1"})", "nul"})
        EXPECT_FALSE(parse_digest(other)) << other;
}

TEST(history_digest, replacement_is_read_as_it_was_written) {
    auto entry = make_entry();
    EXPECT_EQ(entry.history_end(), 1'000);
    entry.replaces = {3, "erased-1", R"(an "order")", "postgres", 2'000, std::int64_t{1} << 60};
    EXPECT_EQ(entry.history_end(), 2'000);
    EXPECT_EQ(entry.changes_end(), std::int64_t{1} << 60);
    const auto read = parse_digest(render_digest(entry));
    ASSERT_TRUE(read && read->replaces);
    EXPECT_EQ(render_digest(*read), render_digest(entry));
    EXPECT_EQ(read->replaces->reason, R"(an "order")");
    EXPECT_FALSE(parse_digest(render_digest(make_entry()).replace(1, 0, R"("replaces":{"number":3},)")));
}

TEST(history_digest, line_has_the_entry_and_its_signature) {
    const signed_digest made{render_digest(make_entry()), std::string(128, 'a'), {}};
    const std::string line = line_of(made);
    EXPECT_TRUE(line.ends_with(",\"signature\":\"" + made.signature + "\"}")) << line;
    EXPECT_EQ(parse_line(line), made);
    for (const auto* other : {"", "{}", "{\"signature\":\"", ",\"signature\":\"aa"})
        EXPECT_FALSE(parse_line(other)) << other;
}

TEST(history_digest, signature_is_of_one_key_and_of_every_character) {
    const auto key = read_private_key(digest_key);
    const auto known = key_of(read_public_key(digest_public_key));
    EXPECT_EQ(key_id_of(*key), key_id_of(*known.front()));
    const std::string text = render_digest(make_entry());
    const std::string signature = sign_text(*key, text);
    EXPECT_TRUE(is_signed(known, text, signature));
    EXPECT_FALSE(is_signed({}, text, signature));
    EXPECT_FALSE(is_signed(key_of(pkey_handle(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"))), text, signature));
    EXPECT_FALSE(is_signed(known, text, ""));
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string changed = text;
        changed[i] ^= 1;
        EXPECT_FALSE(is_signed(known, changed, signature)) << i;
    }
    for (std::size_t i = 0; i < signature.size(); ++i) {
        std::string changed = signature;
        changed[i] = changed[i] == '0' ? '1' : '0';
        EXPECT_FALSE(is_signed(known, text, changed)) << i;
    }
}

}  // namespace
}  // namespace fencegate::pg
