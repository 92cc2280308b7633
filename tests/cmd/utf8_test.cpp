// Text from a model is printed only in whole characters.

#include "cmd/utf8.h"

#include <gtest/gtest.h>

namespace linkcpp::cmd {
namespace {

/// Feeds `text` byte by byte; what came out after each, separated by '|'.
std::string byte_by_byte(const std::string& text) {
    Utf8Stream stream;
    std::string out;
    for (const char byte : text)
        out += stream.add({&byte, 1}) + "|";
    return out + stream.finish();
}

TEST(Utf8, PlainTextIsNotHeldBack) { EXPECT_EQ(byte_by_byte("Paris"), "P|a|r|i|s|"); }

TEST(Utf8, ACharacterComesOutWhole) {
    EXPECT_EQ(byte_by_byte("\u00e9"), "|\u00e9|");
    EXPECT_EQ(byte_by_byte("\u20ac"), "||\u20ac|");
    EXPECT_EQ(byte_by_byte("\U0001f1eb"), "|||\U0001f1eb|");
    EXPECT_EQ(byte_by_byte("a\u20acb"), "a|||\u20ac|b|");
}

TEST(Utf8, ATokenMayEndAndBeginInsideOfCharacters) {
    Utf8Stream stream;
    EXPECT_EQ(stream.add("x\xe2\x82"), "x");
    EXPECT_EQ(stream.add("\xac y \xc3"), "\u20ac y ");
    EXPECT_EQ(stream.add("\xa9"), "\u00e9");
    EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8, TheEndGivesWhatIsLeft) {
    Utf8Stream stream;
    EXPECT_EQ(stream.add("a\xe2\x82"), "a");
    EXPECT_EQ(stream.finish(), "\xe2\x82");
    EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8, WhatIsNoTextPassesThroughUnchanged) {
    for (const std::string text :
         {"\x80\x80\x80\x80", "\xff\xfe", "\xc0\xaf", "\xe2\x28\xa1", "\xf8\x88\x80\x80\x80"}) {
        Utf8Stream stream;
        std::string out;
        for (const char byte : text)
            out += stream.add({&byte, 1});
        EXPECT_EQ(out + stream.finish(), text);
    }
}

}  // namespace
}  // namespace linkcpp::cmd
