/* tokenizer_added.c: see tokenizer_added.h. */
#include "formats/tokenizer_added.h"
#include "base/alloc.h"
#include "base/size.h"
#include "base/utf8.h"
#include "formats/unicode_tables.h"

void phi_trie_init(struct phi_trie *t)
{
    *t = (struct phi_trie){0};
    for (int i = 0; i < 256; i++)
        t->first[i] = -1;
}

void phi_trie_deinit(struct phi_trie *t)
{
    phi_free(t->nodes);
    phi_trie_init(t);
}

/* The node for `byte` in a list of siblings; -1 when it is not there. */
static int32_t find_node(const struct phi_trie *t, int32_t list, unsigned char byte)
{
    while (list >= 0 && t->nodes[list].byte != byte)
        list = t->nodes[list].sibling;
    return list;
}

static bool reserve_nodes(struct phi_trie *t, size_t n_more)
{
    size_t need;
    if (!phi_size_add(t->n, n_more, &need) || need > INT32_MAX)
        return false;
    if (need <= t->capacity)
        return true;
    size_t capacity = phi_size_max(need, t->capacity * 2);
    struct phi_trie_node *nodes = phi_realloc(t->nodes, capacity, sizeof *nodes);
    if (!nodes)
        return false;
    t->nodes = nodes;
    t->capacity = capacity;
    return true;
}

enum phi_status phi_trie_add(struct phi_trie *t, struct phi_str pattern, int32_t token,
                             struct phi_error *err)
{
    if (!reserve_nodes(t, pattern.n))
        return phi_fail_memory(err, "added tokens", pattern.n * sizeof *t->nodes);
    int32_t *list = NULL, node = -1;
    for (size_t i = 0; i < pattern.n; i++) {
        unsigned char byte = (unsigned char)pattern.data[i];
        list = i == 0 ? &t->first[byte] : &t->nodes[node].child;
        node = find_node(t, *list, byte);
        if (node < 0) {
            node = (int32_t)t->n++;
            t->nodes[node] = (struct phi_trie_node){-1, *list, -1, byte};
            *list = node;
        }
    }
    if (t->nodes[node].token >= 0)
        return phi_fail(err, PHI_ERR_FORMAT, "two added tokens match the same text");
    t->nodes[node].token = token;
    return PHI_OK;
}

/* The index of the longest token at text[at], -1 when none is there. */
static int32_t longest_at(const struct phi_trie *t, struct phi_str text, size_t at, size_t *end)
{
    int32_t found = -1;
    int32_t node = t->first[(unsigned char)text.data[at]];
    for (size_t i = at; node >= 0;) {
        i++;
        if (t->nodes[node].token >= 0) {
            found = t->nodes[node].token;
            *end = i;
        }
        if (i == text.n)
            break;
        node = find_node(t, t->nodes[node].child, (unsigned char)text.data[i]);
    }
    return found;
}

static unsigned class_after(struct phi_str text, size_t at, size_t *n)
{
    uint32_t cp;
    *n = (size_t)phi_utf8_decode(text.data + at, text.n - at, &cp);
    return phi_unicode_class(cp);
}

static unsigned class_before(struct phi_str text, size_t at, size_t *n)
{
    size_t begin = at - 1;
    while (begin > 0 && ((unsigned char)text.data[begin] & 0xC0) == 0x80)
        begin--;
    *n = at - begin;
    size_t length;
    return class_after(text, begin, &length);
}

/* Whether the characters around text[begin..end) make it a word of its own. */
static bool stands_alone(struct phi_str text, size_t begin, size_t end)
{
    size_t n;
    return (begin == 0 || !(class_before(text, begin, &n) & PHI_CHAR_WORD)) &&
           (end == text.n || !(class_after(text, end, &n) & PHI_CHAR_WORD));
}

bool phi_added_next(struct phi_added_scan *scan, struct phi_added_match *out)
{
    struct phi_str text = scan->text;
    while (scan->at < text.n) {
        size_t begin = scan->at, end, n;
        int32_t index = longest_at(scan->trie, text, begin, &end);
        if (index < 0) {
            scan->at++;
            continue;
        }
        scan->at = end; /* also behind a match that is passed over */
        const struct phi_added_token *token = &scan->tokens[index];
        if (scan->plain_text && (token->special || !token->normalized))
            continue;
        if (token->single_word && !stands_alone(text, begin, end))
            continue;
        if (token->lstrip) {
            begin = phi_size_max(begin, scan->done);
            while (begin > scan->done && class_before(text, begin, &n) & PHI_CHAR_SPACE)
                begin -= n;
        }
        if (token->rstrip)
            while (end < text.n && class_after(text, end, &n) & PHI_CHAR_SPACE)
                end += n;
        if (begin >= end)
            continue; /* a token of blanks, all of which the one before has swallowed */
        *out = (struct phi_added_match){token, begin, end};
        scan->done = end;
        return true;
    }
    return false;
}
