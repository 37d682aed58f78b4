# The questions of make_data.py as they are, one turn each; the last number of an answer counts.
word_problems_datasets = [
    dict(
        abbr="word_problems",
        type="ais_bench.benchmark.datasets.GSM8KDataset",
        path="{{$PHI_DATA:/tmp/word_problems}}",
        reader_cfg=dict(input_columns=["question"], output_column="answer"),
        infer_cfg=dict(
            prompt_template=dict(
                type="ais_bench.benchmark.openicl.icl_prompt_template.PromptTemplate",
                template=dict(round=[dict(role="HUMAN", prompt="{question}")])),
            retriever=dict(type="ais_bench.benchmark.openicl.icl_retriever.ZeroRetriever"),
            inferencer=dict(type="ais_bench.benchmark.openicl.icl_inferencer.GenInferencer")),
        eval_cfg=dict(
            evaluator=dict(type="ais_bench.benchmark.datasets.Gsm8kEvaluator"),
            pred_postprocessor=dict(type="ais_bench.benchmark.datasets.gsm8k_postprocess"),
            dataset_postprocessor=dict(type="ais_bench.benchmark.datasets.gsm8k_dataset_postprocess")),
    )
]
