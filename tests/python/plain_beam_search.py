"""A beam search in a few lines, which LLM.beam_search is compared with: it keeps everything and never stops early."""


def plain_search(ids, params, ends, max_model_len, step):
    """[(tokens, sum of logprobs)], the best first, as vLLM's loop has it. step(list of ids): a row for each."""
    def score(found):
        tokens, total = found
        return total / (len(tokens) - (tokens[-1] in ends)) ** params.length_penalty

    live, ended = [(ids, 0.0)], []
    for _ in range(min(params.max_tokens, max_model_len - len(ids))):
        grown = [([*tokens, token], total + entry.logprob) for (tokens, total), row in zip(live, step([t for t, _ in live]))
                 for token, entry in row.items()]
        stopped = [params.ignore_eos is False and tokens[-1] in ends for tokens, _ in grown]
        ended += [found for found, stops in zip(grown, stopped) if stops]
        live = sorted((f for f, stops in zip(grown, stopped) if not stops), key=score, reverse=True)[:params.beam_width]
        if not live:
            break
    return sorted(ended + live, key=score, reverse=True)[:params.beam_width]
