"""The operator's desk: the questions about a group of routers, and the changes that an operator makes in it.

=============  =====================================================================================
room           duty
=============  =====================================================================================
``status``     reports of each router, and answers from them for the whole group
``finding``    lists pending schedules in pages
``rejected``   lists rejected records, and drives them again
``controls``   writes records and controls, and waits for the receipts of controls
``asking``     asks a router from a command by its admin API or its probes, and checks a cluster
``sizing``     computes how much a load takes of processes and brokers
``watching``   keeps the reports of the routers for an hour, and measures this process
``verifying``  checks everything that is stored of a delay topic
=============  =====================================================================================

Begin with :mod:`sidecar.operations.desk`, the one class of all questions and changes. The admin API, the page and the
command line call it and add no answers of their own.
"""
