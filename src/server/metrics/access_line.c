/* access_line.c: see access_line.h. */
#include "server/metrics/access_line.h"

#include <stdio.h>

static const char *reason_phrase(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } rows[] = {
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status)
            return rows[i].phrase;
    return "";
}

/* Appends s to out[n..limit], everything but visible ASCII, and also the quote and the backslash,
 * as %XX; "..." when it was cut. Returns the new n. */
static size_t append_quoted(char *out, size_t n, size_t limit, struct phi_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool plain = c > 0x20 && c < 0x7f && c != '"' && c != '\\';
        if (n + 6 > limit)
            return n + (size_t)snprintf(out + n, 4, "...");
        if (plain)
            out[n++] = (char)c;
        else
            n += (size_t)snprintf(out + n, 4, "%%%02X", c);
    }
    return n;
}

void phi_access_line(const char *peer, struct phi_str method, struct phi_str target, int status,
                     char *out, size_t capacity)
{
    enum { MAX_PEER = 64, MAX_METHOD = 32, MAX_TAIL = 64 };
    int shown = status ? status : 499;
    const char *phrase = reason_phrase(shown);
    size_t n = (size_t)snprintf(out, capacity, "%.*s - \"", MAX_PEER, peer);
    n = append_quoted(out, n, n + MAX_METHOD, method);
    out[n++] = ' ';
    n = append_quoted(out, n, capacity - MAX_TAIL, target);
    snprintf(out + n, capacity - n, " HTTP/1.1\" %d%s%s", shown, *phrase ? " " : "", phrase);
}
